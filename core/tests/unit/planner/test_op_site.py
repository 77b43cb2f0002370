"""Who runs at one place, by the user's switches and by token counts."""

from __future__ import annotations

import pytest

from dougong.config.op_switches import OpSwitches
from dougong.contracts import AtLeast, AtMost
from tests.unit.planner.op_harness import kernel, planned, running


def test_without_candidates_plain_torch_runs_and_that_is_no_fallback() -> None:
    made = planned()
    assert set(running(made).values()) == {"native"}
    assert made.fallbacks == ()


def test_token_ranges_become_pieces_and_native_takes_the_rest() -> None:
    made = planned(
        kernel("norm", "acme/small", tokens=AtMost(8)),
        kernel("norm", "acme/large", tokens=AtLeast(33)),
    )
    assert running(made)["model.0.norm"] == "acme/small<=8 native<=32 acme/large"
    assert [one.reason for one in made.ops[0].passed_over] == [
        "runs for 1 to 8 tokens only",
        "runs for 33 and more tokens only",
    ]
    assert made.fallbacks == ()


def test_a_range_that_no_step_reaches_is_no_fallback_but_is_told() -> None:
    made = planned(kernel("norm", "acme/huge", tokens=AtLeast(65)))
    assert running(made)["model.0.norm"] == "native"
    assert made.fallbacks == ()
    assert "at least 65 tokens, and a step has at most 64" in made.ops[0].passed_over[0].reason


@pytest.mark.parametrize(
    ("switches", "norm", "act"),
    [
        (OpSwitches(), "acme/norm", "acme/act"),
        (OpSwitches(is_on=False), "native", "native"),
        (OpSwitches(is_on=False, required=frozenset({"norm"})), "acme/norm", "native"),
        (OpSwitches(off=frozenset({"norm"})), "native", "acme/act"),
        (OpSwitches(required=frozenset({"norm"})), "acme/norm", "acme/act"),
        (OpSwitches(is_on=False, implementations={"norm": "acme/norm"}), "acme/norm", "native"),
        (OpSwitches(implementations={"norm": "native"}), "native", "acme/act"),
        (OpSwitches(off=frozenset({"norm"}), implementations={"norm": "native"}), "native",
         "acme/act"),
    ],
)  # fmt: skip
def test_a_named_op_follows_its_own_sign_and_switching_off_is_no_fallback(
    switches: OpSwitches, norm: str, act: str
) -> None:
    made = planned(kernel("norm", "acme/norm"), kernel("act", "acme/act"), switches=switches)
    assert (running(made)["model.0.norm"], running(made)["model.0.act"]) == (norm, act)
    assert made.fallbacks == ()


def test_who_chose_and_why_not_is_kept() -> None:
    made = planned(
        kernel("norm", "acme/norm"),
        kernel("act", "acme/act"),
        switches=OpSwitches(is_on=False, off=frozenset({"norm"})),
    )
    by_key = {one.key: one for one in made.ops}
    assert by_key["norm"].author == by_key["act"].author == "user"
    assert by_key["norm"].passed_over[0].reason == "--custom-ops -norm was asked for"
    assert by_key["act"].passed_over[0].reason == "--custom-ops none was asked for"


def test_an_explicit_implementation_runs_in_its_range_and_the_rest_by_default_order() -> None:
    ops = (kernel("norm", "acme/small", tokens=AtMost(8)), kernel("norm", "acme/norm"))
    choice = {"norm": "acme/small"}
    made = planned(*ops, switches=OpSwitches(implementations=choice))
    assert running(made)["model.0.norm"] == "acme/small<=8 acme/norm"
    made = planned(*ops, switches=OpSwitches(is_on=False, implementations=choice))
    assert running(made)["model.0.norm"] == "acme/small<=8 native"
    assert made.ops[0].author == "user"


def test_what_keeps_a_candidate_from_running_is_told_truly() -> None:
    """Where native runs because of a switch, nothing else comes first."""
    ops = (kernel("norm", "acme/small", tokens=AtMost(8)), kernel("norm", "acme/norm"))
    choice = {"norm": "acme/small"}
    made = planned(*ops, switches=OpSwitches(is_on=False, implementations=choice))
    assert {one.name: one.reason for one in made.ops[0].passed_over} == {
        "acme/small": "runs for 1 to 8 tokens only",
        "acme/norm": "--custom-ops none was asked for, and --op norm=acme/small names another "
        "implementation",
    }


def test_only_what_runs_at_a_candidates_numbers_of_tokens_comes_before_it() -> None:
    ops = (
        kernel("norm", "acme/small", tokens=AtMost(8), priority=2),
        kernel("norm", "acme/any", priority=1),
        kernel("norm", "acme/few", tokens=AtMost(4)),
        kernel("norm", "acme/last"),
    )
    reasons = {one.name: one.reason for one in planned(*ops).ops[0].passed_over}
    assert reasons["acme/few"] == "acme/small comes first"
    assert reasons["acme/last"] == "acme/small and acme/any come first"
