"""Working defaults for any torch device, to use as they are or to subclass.

`ModelRunner` is what `ReferenceWorker.runner_cls` overrides parts of, made from `RunnerParts`;
`StepInputs`, `ModelStep` and `SampledTokens` are what its parts hand on. Also what a plugin's own
model is made of: `CausalLM`, `WeightTarget`, `Attention`, `AttentionStep`; an encoder's:
`EncoderModel`, `EncoderStep`.
Published to plugins under `CONTRACT_VERSION`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dougong.attention import Attention, AttentionStep
    from dougong.models.causal_lm import CausalLM, WeightTarget
    from dougong.models.encoder_model import EncoderModel, EncoderStep
    from dougong.reference.attention import ReferenceAttentionBackend, ReferenceAttentionImpl
    from dougong.reference.communicator import TorchCommunicator
    from dougong.reference.lora import ReferenceLoRAWrapper
    from dougong.reference.runtime import TorchDeviceRuntime
    from dougong.reference.worker import ReferenceWorker
    from dougong.sampling import SampledTokens
    from dougong.worker import ModelRunner, ModelStep, RunnerParts, StepInputs

__all__ = [
    "Attention",
    "AttentionStep",
    "CausalLM",
    "EncoderModel",
    "EncoderStep",
    "ModelRunner",
    "ModelStep",
    "ReferenceAttentionBackend",
    "ReferenceAttentionImpl",
    "ReferenceLoRAWrapper",
    "ReferenceWorker",
    "RunnerParts",
    "SampledTokens",
    "StepInputs",
    "TorchCommunicator",
    "TorchDeviceRuntime",
    "WeightTarget",
]

_HOME = {
    "Attention": "dougong.attention",
    "AttentionStep": "dougong.attention",
    "CausalLM": "dougong.models.causal_lm",
    "EncoderModel": "dougong.models.encoder_model",
    "EncoderStep": "dougong.models.encoder_model",
    "WeightTarget": "dougong.models.causal_lm",
    "ModelRunner": "dougong.worker",
    "ModelStep": "dougong.worker",
    "ReferenceAttentionBackend": "dougong.reference.attention",
    "ReferenceAttentionImpl": "dougong.reference.attention",
    "ReferenceLoRAWrapper": "dougong.reference.lora",
    "ReferenceWorker": "dougong.reference.worker",
    "RunnerParts": "dougong.worker",
    "SampledTokens": "dougong.sampling",
    "StepInputs": "dougong.worker",
    "TorchCommunicator": "dougong.reference.communicator",
    "TorchDeviceRuntime": "dougong.reference.runtime",
}


def __getattr__(name: str) -> Any:
    # A platform's module subclasses one of these; it should not pay for the others.
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
