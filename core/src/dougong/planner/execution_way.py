"""How the host runs a model: straight-line code of its list, or the modules themselves."""

from __future__ import annotations

from dougong.planner.execution_plan import ExecutionWay, FallbackLevel
from dougong.planner.findings import Findings
from dougong.planner.inputs import PlanInputs

FLAT = "flat"
EAGER = "eager"
_COST = "some microseconds of Python for each layer and step"


def plan_execution(inputs: PlanInputs, findings: Findings) -> ExecutionWay:
    """Flat wherever the model is a list of ops, unless the user asked for another way."""
    asked, problem = inputs.config.compute.execution, inputs.needs.not_flat
    if asked == EAGER:
        return ExecutionWay(EAGER, "execution=eager was asked for")
    if not problem:
        count = inputs.needs.num_calls
        return ExecutionWay(FLAT, f"the model is a list of {count} calls of ops and attention")
    reason = f"the model is no list of ops: {problem}"
    if inputs.config.model.is_encoder and asked is None:
        return ExecutionWay(EAGER, reason)
    if asked == FLAT:
        findings.refuse(
            f"execution={FLAT} cannot be had: {reason}. Ask for execution={EAGER}, or leave it out."
        )
    else:
        findings.fall_back(FallbackLevel.PATH, "execution", reason, _COST)
    return ExecutionWay(EAGER, reason)
