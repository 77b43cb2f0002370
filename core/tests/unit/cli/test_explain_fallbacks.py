from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from dougong.cli.explain_fallbacks import fallbacks_tree
from dougong.planner import Fallback, FallbackLevel, PassedOver
from tests.support.made_up_plans import op_plan, plain_plan

REASON = "needs acme-kernels: not found"


def _op_fallback(key: str, reason: str = REASON, hint: str = "plain torch") -> Fallback:
    return Fallback(level=FallbackLevel.OP, subject=f"op {key}", reason=reason, cost_hint=hint)


def _lines(*fallbacks: Fallback) -> list[str]:
    ops = tuple(op_plan(key, (key,), passed_over=(PassedOver(f"a/{key}", REASON),)) for key in "xy")
    console = Console(file=StringIO(), width=120, highlight=False)
    console.print(fallbacks_tree(replace(plain_plan(), ops=ops, fallbacks=fallbacks)))
    assert isinstance(console.file, StringIO)
    return [line.lstrip("│├└─ ") for line in console.file.getvalue().splitlines()]


def test_none_is_said() -> None:
    assert _lines() == ["fallbacks: none"]


def test_one_reason_of_several_ops_is_told_once_with_the_cost_of_each() -> None:
    assert _lines(_op_fallback("x"), _op_fallback("y", hint="slow"), _op_fallback("z")) == [
        "fallbacks: 3 (op); something more general runs than was there",
        f"ops x, y, z: {REASON}",
        "cost: ops x, z: plain torch",
        "cost: op y: slow",
    ]


def test_the_name_of_an_implementation_does_not_part_what_has_one_reason() -> None:
    told = [_op_fallback(key, f"a/{key}: {REASON}") for key in "xy"]
    assert _lines(*told)[1:] == [f"ops x, y: {REASON}", "cost: plain torch"]


def test_levels_are_counted_and_never_mixed() -> None:
    weights = Fallback(level=FallbackLevel.PATH, subject="weights q4_1", reason=REASON)
    assert _lines(_op_fallback("x"), weights) == [
        "fallbacks: 2 (1 op, 1 path); something more general runs than was there",
        f"op x: {REASON}",
        "cost: plain torch",
        f"weights q4_1: {REASON}",
        "cost: unknown",
    ]
