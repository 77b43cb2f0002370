"""Plans to compare."""

from __future__ import annotations

from typing import Any

from dougong.contracts import KernelReport
from dougong.describe import OpCandidate
from dougong.planner import ExecutionPlan, plan
from dougong.planner.compare import differences
from tests.unit.planner.paper import paper_inputs, site

NORM = OpCandidate(key="norm", name="acme/norm", origin="acme 1.0")
SITES = tuple(site("norm", f"model.{index}", hidden_size=64) for index in range(3))


def planned(**changes: Any) -> ExecutionPlan:
    candidates = {"ops": (NORM,), "kernels": KernelReport(("kit 2",))}
    changes["candidates"] = candidates | changes.get("candidates", {})
    changes["needs"] = {"ops": SITES} | changes.get("needs", {})
    return plan(paper_inputs(**changes))


def told(old: ExecutionPlan, new: ExecutionPlan) -> list[str]:
    return [str(one) for one in differences(old, new)]
