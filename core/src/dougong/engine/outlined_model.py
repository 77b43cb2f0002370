"""What a model is and asks for, from its configuration and headers; what cannot be built is
described all the same, so that a refusal has everything else that is wrong too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from dougong.checkpoint import CheckpointFiles, WeightSummary, find_weight_summary, read_config
from dougong.config import ModelConfig
from dougong.describe import AttentionNeed, ModelNeeds, describe_model, describe_needs
from dougong.engine.checkpoint_identity import checkpoint_identity
from dougong.engine.ignored_attention import ignored_attention
from dougong.errors import CheckpointError, ConfigError
from dougong.execution import NotFlatError, trace
from dougong.models.outline import ModelOutline, outline_model, unfilled_model
from dougong.models.registry import ModelRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlinedModel:
    """A model as planning sees it.

    Attributes:
        model: As its checkpoint describes it.
        needs: What it asks for; as it would be built, where it can be.
        described: Attention as the checkpoint alone describes it.
        identity: See `ExecutionPlan.checkpoint`.
        knows_weights: The headers of all weight files were read.
        refusal: Why no class here can be it; ``None``: one is.
    """

    model: ModelConfig
    needs: ModelNeeds
    described: tuple[AttentionNeed, ...]
    identity: Mapping[str, str]
    knows_weights: bool
    refusal: ConfigError | None

    @property
    def readable_formats(self) -> tuple[str, ...]:
        """Weight formats that the core makes plain; asked for a refusal alone, since it takes
        longer than all the rest."""
        if all(need.is_readable for need in self.needs.weights):
            return ()
        from dougong.checkpoint.dequantize import readable_formats

        return tuple(name.lower() for name in readable_formats())

    def notes(self, max_model_len: int) -> tuple[str, ...]:
        """What the checkpoint describes and the model's class does not have.

        Args:
            max_model_len: Tokens of one request; a window that holds as many makes no difference.
        """
        if self.refusal is not None:
            return ()
        built = self.needs.attention
        return ignored_attention(self.described, built, self.model.architecture, max_model_len)


def outlined_model(files: CheckpointFiles, registry: ModelRegistry) -> OutlinedModel:
    """Describe a model and build it without memory.

    Args:
        files: Its files; weights may be missing.
        registry: Model classes.

    Raises:
        CheckpointError: The configuration lacks or contradicts what every model has.
        PluginError: A plugin's model class broke its contract.
    """
    hf_config, weights = read_config(files), _usable_summary(files)
    refusal: ConfigError | None
    model, refusal = _describe(files, hf_config, weights, registry)
    outline = None
    if refusal is None:
        try:
            outline = _outline(registry, model, weights)
            model = replace(model, is_encoder=outline.is_encoder)
        except ConfigError as exc:
            refusal = exc
    num_parameters = 0 if outline is None else outline.num_parameters
    needs = describe_needs(
        files,
        hf_config,
        weights,
        architecture=model.architecture,
        num_parameters=num_parameters,
    )
    return OutlinedModel(
        model=model if weights else replace(model, num_parameters=num_parameters),
        needs=needs
        if outline is None
        else _with_outline(needs, outline, *_try_flat(registry, model)),
        described=() if model.is_encoder else needs.attention,
        identity=checkpoint_identity(files, hf_config, weights),
        knows_weights=weights is not None,
        refusal=refusal,
    )


def _describe(
    files: CheckpointFiles,
    hf_config: Mapping[str, Any],
    weights: WeightSummary | None,
    registry: ModelRegistry,
) -> tuple[ModelConfig, CheckpointError | None]:
    """As the checkpoint has it; with why nobody computes it, where no class here does."""
    known = registry.names()
    try:
        return describe_model(files, hf_config, weights, known, num_parameters=0), None
    except CheckpointError as exc:
        named = map(str, hf_config.get("architectures") or ())
        try:
            model = describe_model(files, hf_config, weights, (*named, *known), num_parameters=0)
        except CheckpointError:
            raise exc from None
        return model, exc


def _usable_summary(files: CheckpointFiles) -> WeightSummary | None:
    """Of the weight files; ``None`` where they are missing, or damaged, which is told later."""
    try:
        return find_weight_summary(files)
    except CheckpointError:
        return None


def _with_outline(
    needs: ModelNeeds, outline: ModelOutline, num_calls: int, not_flat: str
) -> ModelNeeds:
    return replace(
        needs,
        ops=outline.ops,
        attention=outline.attention,
        adapter_elements=outline.adapter_elements,
        num_calls=num_calls,
        not_flat=not_flat,
    )


def _outline(
    registry: ModelRegistry, model: ModelConfig, weights: WeightSummary | None
) -> ModelOutline:
    return outline_model(
        registry.resolve([model.architecture]),
        _built_from(model),
        _dtype_of(model),
        format_of=weights.format_of if weights else None,
    )


def _try_flat(registry: ModelRegistry, model: ModelConfig) -> tuple[int, str]:
    """Calls in the model's list, or why it is none."""
    cls = registry.resolve([model.architecture])
    try:
        lists = trace(partial(unfilled_model, cls, _built_from(model), _dtype_of(model)))
    except NotFlatError as exc:
        return 0, str(exc)
    return len(lists.forward.nodes), ""


def _built_from(model: ModelConfig) -> dict[str, Any]:
    return {**model.hf_config, "tie_word_embeddings": model.is_tied}


def _dtype_of(model: ModelConfig) -> torch.dtype:
    dtype = getattr(torch, model.dtype, None)
    return dtype if isinstance(dtype, torch.dtype) else torch.float32
