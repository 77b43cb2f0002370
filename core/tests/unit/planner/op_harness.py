"""Plans of a model whose ops are all that matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dougong.config.op_switches import OpSwitches
from dougong.contracts import ConfigError, MultipleOf, Needs
from dougong.describe import OpCandidate
from dougong.planner import ExecutionPlan, plan
from tests.unit.planner.paper import paper_inputs, site

ONLY_64 = Needs(hidden_size=MultipleOf(64))
SITES = (
    site("norm", "model.0.norm", hidden_size=512),
    site("norm", "model.1.norm", hidden_size=500),
    site("act", "model.0.act"),
)
FUSED = (
    site("slot", "model.0.slot"),
    site("norm", "model.0.slot.norm", hidden_size=512),
    site("act", "model.0.slot.act"),
    site("norm", "model.norm", hidden_size=512),
)


def kernel(key: str, name: str, **values: Any) -> OpCandidate:
    return OpCandidate(key=key, name=name, origin="acme 1.0", **values)


def planned(
    *ops: OpCandidate,
    sites: Any = SITES,
    switches: OpSwitches | None = None,
    candidates: Mapping[str, Any] | None = None,
    needs: Mapping[str, Any] | None = None,
    **changes: Any,
) -> ExecutionPlan:
    return plan(
        paper_inputs(
            needs={"ops": sites, **(needs or {})},
            candidates={"ops": ops, **(candidates or {})},
            switches=switches,
            **changes,
        )
    )


def refused(*ops: OpCandidate, **changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        planned(*ops, **changes)
    return str(caught.value)


def running(made: ExecutionPlan) -> dict[str, str]:
    """Path → implementations by token count, those inside a fused slot in brackets."""
    told = {}
    for one in made.ops:
        words = " ".join(
            piece.implementation + ("" if piece.up_to is None else f"<={piece.up_to}")
            for piece in one.assignment.pieces
        )
        for path in one.assignment.paths:
            told[path] = f"[{one.inside}]" if one.inside else words
    return told
