"""Plans of a model whose attention is all that matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dougong.contracts import AttentionBackend, AttentionLimits, AttentionPhase, ConfigError
from dougong.planner import ExecutionPlan, plan
from tests.unit.planner.paper import named, need, paper_inputs

BF16 = frozenset({"bfloat16"})
FP8 = "float8_e4m3fn"
ODD_SIZES = AttentionLimits(dtypes=BF16, head_sizes=frozenset({64, 128}))
PREFILL = AttentionLimits(dtypes=BF16, phases=frozenset({AttentionPhase.PREFILL}))
DECODE = AttentionLimits(dtypes=BF16, phases=frozenset({AttentionPhase.DECODE}))


def planned(
    *backends: AttentionBackend,
    head_dim: int = 64,
    config: Mapping[str, Any] | None = None,
    preferred: str | None = None,
    claims: Mapping[str, Any] | None = None,
    candidates: Mapping[str, Any] | None = None,
    needs: Mapping[str, Any] | None = None,
    **changes: Any,
) -> ExecutionPlan:
    offered = {"attention": named(*backends), "preferred": lambda request: preferred}
    return plan(
        paper_inputs(
            needs={"attention": (need(head_dim=head_dim),), **(needs or {})},
            config=config,
            claims=claims,
            candidates=offered | dict(candidates or {}),
            **changes,
        )
    )


def refused(*backends: AttentionBackend, **changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        planned(*backends, **changes)
    return str(caught.value)


def names(made: ExecutionPlan) -> list[tuple[str, str | None]]:
    return [(one.assignment.backend, one.assignment.decode_backend) for one in made.attention]
