"""What crosses a process border: frozen data without torch, in one direction per step.

`Request` → scheduler → `SchedulerOutput` → worker → `ModelRunnerOutput` → scheduler →
`RequestDelta` → front end → `RequestOutput`.
"""

from __future__ import annotations

from dougong.messages.lora import LoRARef
from dougong.messages.output import (
    CompletionOutput,
    EmbeddingOutput,
    FinishReason,
    RequestDelta,
    RequestMetrics,
    RequestOutput,
)
from dougong.messages.pooling import PoolingMethod, PoolingParams, PoolingSpec
from dougong.messages.request import Request, SamplingParams
from dougong.messages.step import (
    CachedRequestData,
    ModelRunnerOutput,
    NewRequestData,
    SchedulerOutput,
    TokenLogprobs,
)
from dougong.messages.structured_output import StructuredOutput

__all__ = [
    "CachedRequestData",
    "CompletionOutput",
    "EmbeddingOutput",
    "FinishReason",
    "LoRARef",
    "ModelRunnerOutput",
    "NewRequestData",
    "PoolingMethod",
    "PoolingParams",
    "PoolingSpec",
    "Request",
    "RequestDelta",
    "RequestMetrics",
    "RequestOutput",
    "SamplingParams",
    "SchedulerOutput",
    "StructuredOutput",
    "TokenLogprobs",
]
