"""What crosses a process border: frozen data without torch, in one direction per step.

`Request` → scheduler → `SchedulerOutput` → worker → `ModelRunnerOutput` → scheduler →
`RequestDelta` → front end → `RequestOutput`.
"""

from __future__ import annotations

from dougong.messages.output import (
    CompletionOutput,
    FinishReason,
    RequestDelta,
    RequestMetrics,
    RequestOutput,
)
from dougong.messages.request import Request, SamplingParams
from dougong.messages.step import (
    CachedRequestData,
    ModelRunnerOutput,
    NewRequestData,
    SchedulerOutput,
    TokenLogprobs,
)

__all__ = [
    "CachedRequestData",
    "CompletionOutput",
    "FinishReason",
    "ModelRunnerOutput",
    "NewRequestData",
    "Request",
    "RequestDelta",
    "RequestMetrics",
    "RequestOutput",
    "SamplingParams",
    "SchedulerOutput",
    "TokenLogprobs",
]
