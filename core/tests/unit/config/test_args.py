from __future__ import annotations

import pytest

from dougong.config import CommandDefault, EngineArgs
from dougong.errors import ConfigError


def test_only_what_was_set_is_explicit() -> None:
    args = EngineArgs(model="m", seed=0, enable_prefix_caching=False, dtype="auto")
    assert args.explicit == {"model", "seed", "enable_prefix_caching"}


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"max_num_sequences.*max_num_seqs"):
        EngineArgs.from_options({"model": "m", "max_num_sequences": 4})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_num_seqs": "8"}, r"max_num_seqs='8', a str; it takes a whole number \(int\)"),
        ({"max_num_seqs": 8.0}, r"max_num_seqs=8\.0, a float"),
        ({"max_num_seqs": True}, "max_num_seqs=True, a bool"),
        ({"enable_prefix_caching": 1}, r"enable_prefix_caching=1, a int; it takes True or False"),
        ({"device_memory_utilization": "half"}, r"takes a number \(float\)"),
        ({"dtype": 16}, r"dtype=16, a int; it takes a text \(str\)"),
        ({"platform": ""}, "platform='' is empty"),
        ({"op": "rms_norm=native"}, r"op='rms_norm=native', a str; it takes a list of texts"),
        ({"op": ["rms_norm=native", 1]}, r"op has 1 in it; each of them is a text"),
        ({"strict": 1}, r"strict=1, a int; it takes True or False"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_the_field_and_the_right_one(
    options: dict[str, object], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        EngineArgs.from_options({"model": "m", **options})


def test_every_wrong_type_is_told_at_once_and_a_whole_share_is_none() -> None:
    with pytest.raises(ConfigError) as caught:
        EngineArgs.from_options({"model": "m", "seed": "1", "devices": 0})
    assert len(caught.value.problems) == 2
    EngineArgs.from_options({"model": "m", "device_memory_utilization": 1})


def test_a_commands_default_is_no_wish_of_the_user() -> None:
    default = CommandDefault("max_num_seqs", 1, "command generate", "one prompt")
    args = EngineArgs(model="m", defaults=(default,))
    assert args.explicit == {"model"}


def test_a_list_of_ops_is_kept_as_what_cannot_change_and_an_empty_one_is_none() -> None:
    assert EngineArgs(model="m", op=["linear=native"]).op == ("linear=native",)
    assert EngineArgs(model="m", op=[]).explicit == {"model"}


def test_choices_are_plain_values_and_come_back_as_the_same_wishes() -> None:
    args = EngineArgs(
        model="m",
        op=("linear=a/b", "rms_norm=native"),
        custom_ops="none",
        dtype="auto",
        strict=True,
    )
    assert args.choices == {
        "custom_ops": "none",
        "op": "linear=a/b,rms_norm=native",
        "strict": True,
    }
    again = EngineArgs(model="m").with_choices(args.choices)
    assert again.choices == args.choices
    assert again.op == args.op


def test_what_was_asked_for_stays_where_choices_are_taken_over() -> None:
    args = EngineArgs(model="m", seed=7).with_choices({"seed": 1, "max_num_seqs": 2})
    assert (args.seed, args.max_num_seqs) == (7, 2)
    with pytest.raises(ConfigError, match="max_num_sequences"):
        args.with_choices({"max_num_sequences": 1})
