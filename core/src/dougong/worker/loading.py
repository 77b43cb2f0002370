"""From a plan to a model that can run: built, loaded, bound; nothing is chosen."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dougong.attention import Classified
from dougong.checkpoint import open_tensors, resolve_reference
from dougong.contracts import KernelReport, LoadReport, RankPlan, WorkerContext
from dougong.models.causal_lm import CausalLM
from dougong.models.loader import WeightLoadReport, load_model
from dougong.models.registry import ModelRegistry
from dougong.ops.assignments import SAMPLER_PREFIX
from dougong.ops.binding import BindReport, bind_ops
from dougong.ops.registry import OpRegistry
from dougong.sampling import Sampler
from dougong.worker.asked_backends import asked_backends
from dougong.worker.attention_layers import AttentionLayers


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model and what it needs to run.

    Attributes:
        plan: That it obeys.
        model: Loaded and bound.
        sampler: Bound.
        attention: Bound, without a cache.
        weights: What was loaded.
        ops: What was bound.
    """

    plan: RankPlan
    model: CausalLM
    sampler: Sampler
    attention: AttentionLayers
    weights: WeightLoadReport
    ops: BindReport

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
        model, weights = _load_checkpoint(context, device)
        sampler = Sampler()
    backends = asked_backends(context.platform)
    attention = AttentionLayers(model, backends, plan, device, classified)
    ops = bind_ops(model, registry, plan.ops, classified=classified)
    ops.add(bind_ops(sampler, registry, plan.ops, prefix=SAMPLER_PREFIX, classified=classified))
    return LoadedModel(plan, model, sampler, attention, weights, ops)


def _load_checkpoint(
    context: WorkerContext, device: torch.device
) -> tuple[CausalLM, WeightLoadReport]:
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
    )
