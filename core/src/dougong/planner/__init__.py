"""The decision: what will run, from the model's needs, the device, the candidates, the choices.

Pure: no device, no file, no clock. `plan` gives an immutable `ExecutionPlan` or refuses with every
reason at once.
"""

from __future__ import annotations

from dougong.planner.execution_plan import (
    PLAN_VERSION,
    AttentionPlan,
    ExecutionMode,
    ExecutionPlan,
    ExecutionWay,
    Fallback,
    FallbackLevel,
    KVCachePlanned,
    LoRAPlan,
    OpPlan,
    PassedOver,
    WeightPlan,
)
from dougong.planner.inputs import Candidates, PlanInputs
from dougong.planner.planning import plan

__all__ = [
    "PLAN_VERSION",
    "AttentionPlan",
    "Candidates",
    "ExecutionMode",
    "ExecutionPlan",
    "ExecutionWay",
    "Fallback",
    "FallbackLevel",
    "KVCachePlanned",
    "LoRAPlan",
    "OpPlan",
    "PassedOver",
    "PlanInputs",
    "WeightPlan",
    "plan",
]
