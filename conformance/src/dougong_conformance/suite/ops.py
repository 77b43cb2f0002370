"""Checks of single ops: the numbers, at sizes and values that once let something pass."""

from __future__ import annotations

from collections.abc import Callable

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.subject import Subject
from dougong_conformance.suite.op_rows import check_rows

_BY_ROWS = (
    "rms_norm",
    "long_reductions",
    "fused_add_rms_norm",
    "layer_norm",
    "activations",
    "rotary_embedding",
    "rotary_scaled",
    "qkv_norm_rope",
    "linear",
    "gate_up_act",
    "lm_head",
    "embedding",
    "moe_route",
    "moe_experts",
    "encoder_attention",
    "stale_output",
)


def _by_rows(id: str) -> Callable[[Subject, Judge, str], None]:
    def run(subject: Subject, judge: Judge, dtype: str) -> None:
        check_rows(subject, judge, id, dtype)

    return run


for _name in _BY_ROWS:
    check(f"ops.{_name}", per_dtype=True)(_by_rows(f"ops.{_name}"))


@check("ops.rounding_bias", per_dtype=True)
def rounding_bias(subject: Subject, judge: Judge, dtype: str) -> None:
    check_rows(subject, judge, "ops.rounding_bias", dtype, bias=True)
