"""A model without weights: what it is made of, known in milliseconds and without memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from dougong.attention import outline_attention
from dougong.describe import AttentionNeed, OpSite
from dougong.errors import DougongError, PluginError
from dougong.lora import adapter_elements, adapter_places
from dougong.models.encoder_model import EncoderModel
from dougong.models.loadable import LoadableModel
from dougong.ops.assignments import SAMPLER_PREFIX
from dougong.ops.outline import outline_ops
from dougong.ops.stored_weight import STORED_FORMATS
from dougong.sampling import Sampler

M = TypeVar("M", bound=LoadableModel)

_META = torch.device("meta")


@dataclass(frozen=True, slots=True)
class ModelOutline:
    """What a built model would consist of.

    Attributes:
        ops: Of the model, then of the sampler, whose paths begin with `SAMPLER_PREFIX`.
        attention: Kinds of attention layers.
        num_parameters: Elements of all parameters; a tied head counts once.
        adapter_elements: Of one adapter of rank 1 at every projection that takes one.
        is_encoder: It keeps no keys and values, and gives no logits.
    """

    ops: tuple[OpSite, ...]
    attention: tuple[AttentionNeed, ...]
    num_parameters: int
    adapter_elements: int = 0
    is_encoder: bool = False


def outline_model(
    model_cls: type[LoadableModel],
    hf_config: Mapping[str, Any],
    dtype: torch.dtype,
    max_model_len: int | None = None,
    format_of: Mapping[str, str] | None = None,
) -> ModelOutline:
    """Build a model on torch's ``meta`` device, where tensors have shapes and no memory, and list
    its parts.

    Args:
        model_cls: The class.
        hf_config: Of the checkpoint; the head is tied as its ``tie_word_embeddings`` says.
        dtype: Of parameters and activations.
        max_model_len: See `LoadableModel`.
        format_of: Storage format of the checkpoint's tensors, by name; ``None``: nobody knows.

    Raises:
        ConfigError: As the class's own.
        PluginError: The class cannot be built without memory.
    """
    model = unfilled_model(model_cls, hf_config, dtype, max_model_len)
    with _META:
        sampler = Sampler()
    return ModelOutline(
        ops=(
            *_with_weights(outline_ops(model), model, format_of or {}),
            *outline_ops(sampler, SAMPLER_PREFIX),
        ),
        attention=outline_attention(model),
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        adapter_elements=adapter_elements(adapter_places(model, model.weight_targets())),
        is_encoder=isinstance(model, EncoderModel),
    )


def _with_weights(
    sites: Iterable[OpSite], model: LoadableModel, format_of: Mapping[str, str]
) -> Iterator[OpSite]:
    """Ops with the name of their weight, and how all that becomes it is stored."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    formats: dict[int, set[str]] = {}
    for name, target in model.weight_targets().items():
        formats.setdefault(id(target.parameter), set()).add(format_of.get(name, "").lower())
    for site in sites:
        weight = getattr(model.get_submodule(site.path), "weight", None)
        stored = formats.get(id(weight), set())
        is_stored = len(stored) == 1 and stored <= STORED_FORMATS.keys()
        yield replace(
            site,
            weight=names.get(id(weight), ""),
            stored_as=next(iter(stored)) if is_stored else "",
        )


def unfilled_model(
    model_cls: type[M],
    hf_config: Mapping[str, Any],
    dtype: torch.dtype,
    max_model_len: int | None = None,
) -> M:
    """A model on torch's ``meta`` device.

    Args:
        model_cls: As in `outline_model`, and so is the rest.
        hf_config: Of the checkpoint.
        dtype: Of parameters and activations.
        max_model_len: See `LoadableModel`.

    Raises:
        ConfigError: As the class's own.
        PluginError: The class cannot be built without memory.
    """
    with _META:
        try:
            return model_cls(hf_config, dtype, max_model_len)
        except DougongError:
            raise
        except Exception as exc:
            raise PluginError(
                f"{model_cls.__module__}.{model_cls.__qualname__} cannot be built on the meta "
                f"device, where planning looks at a model: {type(exc).__name__}: {exc}. A model's "
                "constructor must read no value of a tensor."
            ) from exc
