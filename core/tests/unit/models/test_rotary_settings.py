from __future__ import annotations

import pytest

from dougong.errors import ConfigError
from dougong.models.rotary import cos_sin_table
from dougong.models.rotary_settings import ROPE_TYPES, default_num_positions, read_rotary_settings
from tests.support.tiny_models import ROPE_KINDS, tiny_config

HEAD_DIM = 16


def test_every_known_type_has_its_table() -> None:
    assert {str(rope["rope_type"]) for rope in ROPE_KINDS.values()} == set(ROPE_TYPES)
    for rope in ROPE_KINDS.values():
        settings = read_rotary_settings(tiny_config(rope_parameters=rope), HEAD_DIM)
        assert cos_sin_table(settings, 3).shape == (3, HEAD_DIM)


def test_a_part_of_nothing_or_an_odd_part_is_refused() -> None:
    for share in (0.05, 0.2):
        with pytest.raises(ConfigError, match="even number"):
            read_rotary_settings(tiny_config(partial_rotary_factor=share), HEAD_DIM)


def test_old_and_new_spellings_say_the_same() -> None:
    llama3 = dict(ROPE_KINDS["llama3"])
    new = tiny_config(rope_parameters={**llama3, "rope_theta": 777.0})
    old = tiny_config(rope_parameters=None, rope_scaling=llama3, rope_theta=777.0)
    scaling = {"type" if key == "rope_type" else key: value for key, value in llama3.items()}
    oldest = tiny_config(rope_parameters=None, rope_scaling=scaling, rope_theta=777.0)
    read = [read_rotary_settings(config, HEAD_DIM) for config in (new, old, oldest)]
    assert {(settings.rope_type, settings.theta) for settings in read} == {("llama3", 777.0)}
    for key in llama3.keys() - {"rope_type"}:
        assert {settings.number(key) for settings in read} == {llama3[key]}


def test_a_config_that_says_nothing_means_plain_rotation_with_the_common_base() -> None:
    settings = read_rotary_settings(tiny_config(rope_parameters=None), HEAD_DIM)
    assert (settings.rope_type, settings.theta, settings.rotary_dim) == ("default", 10000.0, 16)


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    config = tiny_config(rope_parameters={"rope_type": "ntk", "factor": 2.0})
    with pytest.raises(
        ConfigError, match=r"'ntk'.*default, linear, dynamic, yarn, llama3, longrope"
    ):
        read_rotary_settings(config, HEAD_DIM)


@pytest.mark.parametrize(
    ("factors", "told"),
    [(None, "found None"), ([1.0] * 7, "found 7 of them"), ([1.0] * 7 + ["1"], "hold numbers")],
)
def test_longrope_without_a_factor_for_every_wave_is_refused(factors: object, told: str) -> None:
    rope = {**ROPE_KINDS["longrope"], "long_factor": factors}
    settings = read_rotary_settings(tiny_config(rope_parameters=rope), HEAD_DIM)
    with pytest.raises(ConfigError, match=told):
        cos_sin_table(settings, 65)


def test_settings_per_layer_type_are_refused() -> None:
    nested = {"full_attention": {"rope_type": "default"}, "sliding_attention": None}
    with pytest.raises(ConfigError, match="full_attention"):
        read_rotary_settings(tiny_config(rope_parameters=nested), HEAD_DIM)


@pytest.mark.parametrize("value", [None, "eight", True])
def test_a_missing_number_is_named(value: object) -> None:
    rope = {"rope_type": "linear", "factor": value}
    with pytest.raises(ConfigError, match="'factor'"):
        read_rotary_settings(tiny_config(rope_parameters=rope), HEAD_DIM).number("factor")


@pytest.mark.parametrize(
    ("rope", "length"),
    [
        ("default", 256),
        ("linear", 640),
        ("dynamic", 1024),
        ("yarn", 256),  # 64 times 4: the config's own length has it already
        ("llama3", 256),
    ],
)
def test_scaling_lengthens_what_the_config_promises(rope: str, length: int) -> None:
    config = tiny_config(rope_parameters=ROPE_KINDS[rope])
    assert default_num_positions(read_rotary_settings(config, HEAD_DIM)) == length


def test_a_yarn_config_may_state_the_length_before_scaling() -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
    config = tiny_config(rope_parameters=rope, max_position_embeddings=256)
    assert default_num_positions(read_rotary_settings(config, HEAD_DIM)) == 1024
