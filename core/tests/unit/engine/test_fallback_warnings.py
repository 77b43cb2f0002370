from __future__ import annotations

from dataclasses import replace

from dougong.engine.fallback_warnings import fallback_warnings
from dougong.planner import Fallback, FallbackLevel
from tests.support.made_up_plans import plain_plan

WHY = "libacme.so was not found"


def fallback(subject: str, reason: str, hint: str = "") -> Fallback:
    return Fallback(level=FallbackLevel.OP, subject=subject, reason=reason, cost_hint=hint)


def test_a_missing_library_is_told_once_with_all_that_fell_back_for_it() -> None:
    plan = replace(
        plain_plan(),
        kernels_missing={"acme-lib": WHY},
        fallbacks=(
            fallback("op linear", f"acme/mm: needs acme-lib: {WHY}", "plain torch at 9 places"),
            fallback("op rms_norm", f"acme/norm: needs acme-lib: {WHY}"),
            fallback("op lm_head", "acme/head: vocab_size 7; takes multiples of 8", "slow"),
        ),
    )
    assert fallback_warnings(plan) == (
        f"op fallback: op linear (plain torch at 9 places), op rms_norm: acme-lib: {WHY}",
        "op fallback: op lm_head: acme/head: vocab_size 7; takes multiples of 8 (slow)",
    )


def test_a_cause_that_stands_alone_is_told_in_the_fallbacks_own_words() -> None:
    one = fallback("op linear", f"acme/mm: needs acme-lib: {WHY}")
    plan = replace(plain_plan(), kernels_missing={"acme-lib": WHY}, fallbacks=(one,))
    assert fallback_warnings(plan) == (str(one),)
    assert fallback_warnings(plain_plan()) == ()
