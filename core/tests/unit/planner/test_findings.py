from __future__ import annotations

import pytest

from dougong.contracts import ConfigError, PluginError
from dougong.planner import FallbackLevel
from dougong.planner.findings import Findings, nested


def findings() -> Findings:
    return Findings("paper/model cannot run", "paper")


def test_problems_are_raised_together_and_nothing_is_raised_without_any() -> None:
    found = findings()
    found.check(is_strict=True)
    found.refuse("seed=x is odd.")
    found.refuse("dtype=y is odd.")
    with pytest.raises(ConfigError) as caught:
        found.check(is_strict=False)
    assert caught.value.problems == ("seed=x is odd.", "dtype=y is odd.")


def test_what_the_platform_asked_for_is_its_vendors_fault_with_the_rest_beside_it() -> None:
    found = findings()
    found.refuse("dtype=y is odd.")
    found.refuse("block_size=3 is odd.", author="platform paper")
    with pytest.raises(PluginError, match=r"(?s)Platform paper .*block_size=3.*dtype=y") as caught:
        found.check(is_strict=False)
    assert caught.value.plugin == "paper"


def test_a_fallback_is_noted_once_per_subject_and_reason() -> None:
    found = findings()
    for reason in ("slow", "slow", "old"):
        found.fall_back(FallbackLevel.PATH, "attention", reason)
    found.fall_back(FallbackLevel.OP, "op norm", "slow", "a little")
    assert [str(one) for one in found.ordered_fallbacks()] == [
        "op fallback: op norm: slow (a little)",
        "path fallback: attention: slow",
        "path fallback: attention: old",
    ]
    found.check(is_strict=False)
    with pytest.raises(ConfigError, match="--strict refuses any fallback"):
        found.check(is_strict=True)


def test_reasons_of_candidates_stand_under_their_problem() -> None:
    error = ConfigError("Cannot run:", (nested("nobody serves:", ("a: small", "b: old")),))
    assert str(error) == "Cannot run:\n  - nobody serves:\n      a: small\n      b: old"
