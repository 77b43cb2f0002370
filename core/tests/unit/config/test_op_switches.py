"""``--custom-ops`` and ``--op``: every form of scenario A06."""

from __future__ import annotations

import pytest

from dougong.config.op_switches import OpSwitches, parse_op_switches
from dougong.errors import ConfigError

KNOWN = ("rms_norm", "silu_and_mul", "acme/swirl")


def parse(custom_ops: str | None = None, *implementations: str) -> OpSwitches:
    return parse_op_switches(custom_ops, implementations, KNOWN)


def refusal(custom_ops: str | None = None, *implementations: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(custom_ops, *implementations)
    return caught.value


def test_nothing_said_leaves_everything_on() -> None:
    assert parse() == OpSwitches()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", OpSwitches()),
        ("none", OpSwitches(is_on=False)),
        ("none,+rms_norm", OpSwitches(is_on=False, required=frozenset({"rms_norm"}))),
        ("all,-rms_norm", OpSwitches(off=frozenset({"rms_norm"}))),
        ("+rms_norm", OpSwitches(required=frozenset({"rms_norm"}))),
        ("-acme/swirl , none", OpSwitches(is_on=False, off=frozenset({"acme/swirl"}))),
    ],
)
def test_an_op_follows_its_own_sign_and_the_others_the_mode(
    text: str, expected: OpSwitches
) -> None:
    assert parse(text) == expected


def test_an_implementation_is_chosen_by_name_once_per_op() -> None:
    assert parse("none", "rms_norm=acme/rms", "silu_and_mul=native").implementations == {
        "rms_norm": "acme/rms",
        "silu_and_mul": "native",
    }
    assert parse(None, "rms_norm=a=b").implementations == {"rms_norm": "a=b"}
    assert parse(None, "rms_norm=a/x", "rms_norm=a/x").implementations == {"rms_norm": "a/x"}


@pytest.mark.parametrize(
    ("text", "implementations", "told"),
    [
        ("all,none", (), "both all and none"),
        ("+rms_norm,-rms_norm", (), r"both \+rms_norm and -rms_norm"),
        ("+rms", (), "names rms, which .* known: acme/swirl, rms_norm, silu_and_mul"),
        ("-rms,+swirl", (), "names rms, swirl, which"),
        ("rms_norm", (), r"'rms_norm', which is neither .* write \+rms_norm or -rms_norm"),
        ("all,,+rms_norm", (), "'', which is neither"),
        ("+", (), r"'\+', which is neither"),
        (None, ("rms_norm",), "--op 'rms_norm' is malformed"),
        (None, ("=x",), "--op '=x' is malformed"),
        (None, ("rms_norm=",), "--op 'rms_norm=' is malformed"),
        (None, ("swirl=x",), "--op names swirl, which .* known: acme/swirl"),
        (None, ("rms_norm=a/x", "rms_norm=a/y"), "rms_norm=a/x and --op rms_norm=a/y contradict"),
        ("-rms_norm", ("rms_norm=a/x",), "-rms_norm and --op rms_norm=a/x contradict"),
        ("+rms_norm", ("rms_norm=native",), r"\+rms_norm and --op rms_norm=native contradict"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    text: str | None, implementations: tuple[str, ...], told: str
) -> None:
    error = refusal(text, *implementations)
    assert len(error.problems) == 1
    with pytest.raises(ConfigError, match=told):
        raise error


def test_what_says_the_same_twice_is_no_contradiction() -> None:
    assert parse("-rms_norm", "rms_norm=native").off == {"rms_norm"}
    assert parse("+rms_norm", "rms_norm=a/x").required == {"rms_norm"}
    assert not parse("none", "rms_norm=a/x").is_on


def test_all_problems_are_in_one_message() -> None:
    error = refusal("all,none,+rms,-silu_and_mul,+silu_and_mul,silu", "x", "swirl=y")
    assert len(error.problems) == 6


def test_names_that_were_checked_before_are_taken_as_they_are() -> None:
    switches = parse_op_switches("+of_a_plugin", ("gone=a/x",), known=None)
    assert switches.required == {"of_a_plugin"}
    assert switches.implementations == {"gone": "a/x"}
