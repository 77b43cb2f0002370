"""A model without weights: what it is made of, known in milliseconds and without memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dougong.attention import outline_attention
from dougong.describe import AttentionNeed, OpSite
from dougong.errors import DougongError, PluginError
from dougong.models.causal_lm import CausalLM
from dougong.ops.assignments import SAMPLER_PREFIX
from dougong.ops.outline import outline_ops
from dougong.sampling import Sampler

_META = torch.device("meta")


@dataclass(frozen=True, slots=True)
class ModelOutline:
    """What a built model would consist of.

    Attributes:
        ops: Of the model, then of the sampler, whose paths begin with `SAMPLER_PREFIX`.
        attention: Kinds of attention layers.
        num_parameters: Elements of all parameters; a tied head counts once.
    """

    ops: tuple[OpSite, ...]
    attention: tuple[AttentionNeed, ...]
    num_parameters: int


def outline_model(
    model_cls: type[CausalLM],
    hf_config: Mapping[str, Any],
    dtype: torch.dtype,
    max_model_len: int | None = None,
) -> ModelOutline:
    """Build a model on torch's ``meta`` device, where tensors have shapes and no memory, and list
    its parts.

    Args:
        model_cls: The class.
        hf_config: Of the checkpoint; the head is tied as its ``tie_word_embeddings`` says.
        dtype: Of parameters and activations.
        max_model_len: See `CausalLM`.

    Raises:
        ConfigError: As the class's own.
        PluginError: The class cannot be built without memory.
    """
    with _META:
        try:
            model = model_cls(hf_config, dtype, max_model_len)
        except DougongError:
            raise
        except Exception as exc:
            raise PluginError(
                f"{model_cls.__module__}.{model_cls.__qualname__} cannot be built on the meta "
                f"device, where planning looks at a model: {type(exc).__name__}: {exc}. A model's "
                "constructor must read no value of a tensor."
            ) from exc
        sampler = Sampler()
    return ModelOutline(
        ops=(*outline_ops(model), *outline_ops(sampler, SAMPLER_PREFIX)),
        attention=outline_attention(model),
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
    )
