"""From a plan to a model that can run: built, loaded, bound; nothing is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from dougong.attention import Classified
from dougong.checkpoint import open_tensors, resolve_reference
from dougong.contracts import KernelReport, LoadReport, PluginError, RankPlan, WorkerContext
from dougong.execution import Executable, FlatExecutable, NotFlatError, callees, trace
from dougong.lora import LoRAPlace, LoRASlots, adapter_places
from dougong.models.causal_lm import CausalLM
from dougong.models.encoder_model import EncoderModel
from dougong.models.loader import WeightLoadReport, load_model
from dougong.models.outline import unfilled_model
from dougong.models.registry import ModelRegistry
from dougong.ops.assignments import SAMPLER_PREFIX
from dougong.ops.binding import BindReport, bind_ops
from dougong.ops.failures import blames_implementation, reason_of
from dougong.ops.registry import OpRegistry
from dougong.planner.execution_way import FLAT
from dougong.platforms.lora_wrapper import load_lora_wrapper
from dougong.sampling import Sampler
from dougong.worker.asked_backends import asked_backends
from dougong.worker.attention_layers import AttentionLayers


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model and what it needs to run.

    Attributes:
        plan: That it obeys.
        model: Loaded and bound.
        executable: What its steps run.
        sampler: Bound.
        attention: Bound, without a cache.
        weights: What was loaded.
        ops: What was bound.
        lora: Adapters, none of them loaded; ``None``: the plan has none.
    """

    plan: RankPlan
    model: CausalLM | EncoderModel
    executable: Executable | EncoderModel
    sampler: Sampler
    attention: AttentionLayers
    weights: WeightLoadReport
    ops: BindReport
    lora: LoRASlots | None = None

    def report(self, kernels: KernelReport) -> LoadReport:
        """As the engine reads it."""
        return LoadReport(
            weight_bytes=self.weights.model_bytes,
            seconds=self.weights.seconds,
            attention_backends=self.attention.count_backends(),
            implementations=self.ops.implementations,
            kernels=kernels,
        )


def load_planned_model(
    context: WorkerContext, plan: RankPlan, device: torch.device, classified: Classified
) -> LoadedModel:
    """Build the model under the plan's out-of-tree classes, fill it, bind what the plan names.

    Args:
        context: What to load.
        plan: Who computes what.
        device: Where it lives.
        classified: Made around implementations' own code; turns a vendor's exceptions into
            `DeviceError` where they are one.

    Raises:
        CheckpointError: The files do not hold what the model needs.
        ImplementationError: Something the plan names cannot be made for this model.
        PluginError: The plan does not fit what was built here.
    """
    registry = OpRegistry.from_registrations(context.registrations)
    with registry.overriding(plan.ops):
        model, weights = _load_checkpoint(context, plan, device)
        sampler = Sampler()
    # Before binding: a kernel may give the weights back that these are found by.
    places = adapter_places(model, model.weight_targets()) if plan.lora is not None else ()
    backends = asked_backends(context.platform)
    attention = AttentionLayers(model, backends, plan, device, classified)
    ops = bind_ops(model, registry, plan.ops, classified=classified)
    if context.config.pooling is None:
        ops.add(bind_ops(sampler, registry, plan.ops, prefix=SAMPLER_PREFIX, classified=classified))
    lora = _make_lora(context, plan, model, places, device, classified)
    executable = _executable(context, plan, model)  # over the adapters' projections
    return LoadedModel(plan, model, executable, sampler, attention, weights, ops, lora)


def _make_lora(
    context: WorkerContext,
    plan: RankPlan,
    model: CausalLM | EncoderModel,
    places: Sequence[LoRAPlace],
    device: torch.device,
    classified: Classified,
) -> LoRASlots | None:
    """The adapters' memory, and the platform's wrapper around every projection.

    Raises:
        PluginError: The wrapper cannot be made, or failed when it was first used.
    """
    if plan.lora is None:
        return None
    name = context.platform.name
    wrapper_cls = load_lora_wrapper(plan.lora.wrapper, name)
    assert context.config.max_num_batched_tokens
    try:
        with classified():
            wrapper = wrapper_cls(
                max_num_batched_tokens=context.config.max_num_batched_tokens,
                max_loras=plan.lora.max_loras,
                device=device,
            )
            slots = LoRASlots(model, places, wrapper, plan.lora.max_rank)
            slots.try_wrapper()
    except Exception as exc:
        if not blames_implementation(exc):
            raise
        raise PluginError(
            f"{plan.lora.wrapper}, which adds adapters on platform {name!r}, failed at its first "
            f"use: {reason_of(exc)}. Start without --enable-lora, or report this to its vendor.",
            plugin=name,
        ) from exc
    return slots


def _executable(
    context: WorkerContext, plan: RankPlan, model: CausalLM | EncoderModel
) -> Executable | EncoderModel:
    """The model itself, or straight-line code over its ops.

    The list is that of the core's own classes: one that takes an op's place is called alike, and
    need not know how to compute without memory.

    Raises:
        PluginError: It was a list of ops while it was planned, and is none here.
    """
    if plan.execution != FLAT or isinstance(model, EncoderModel):
        return model
    size = (model.hf_config, model.dtype, model.max_model_len)
    try:
        lists = trace(partial(unfilled_model, type(model), *size))
    except NotFlatError as exc:
        raise PluginError(
            f"{context.config.architecture} was planned as a list of ops, and is none on this "
            f"rank: {exc}. Start with --execution eager, and report this."
        ) from exc
    return FlatExecutable(lists, callees(model, lists))


def _load_checkpoint(
    context: WorkerContext, plan: RankPlan, device: torch.device
) -> tuple[CausalLM | EncoderModel, WeightLoadReport]:
    config = context.config
    assert config.architecture and config.dtype
    registry = ModelRegistry(context.registrations)
    return load_model(
        registry.resolve([config.architecture]),
        config.hf_config,
        getattr(torch, config.dtype),
        device,
        open_tensors(resolve_reference(context.model_path)),
        max_model_len=config.max_model_len,
        stored=plan.stored,
    )
