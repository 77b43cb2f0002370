"""The plan of one engine: everything is gathered here, and the planner decides.

What cannot work is refused from the checkpoint's configuration and the device's facts alone: no
device is opened and no weight need be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dougong.checkpoint import CheckpointFiles, resolve_reference
from dougong.config import EngineArgs, EngineConfig, resolve, view_of_wishes
from dougong.config.op_switches import OpSwitches, parse_op_switches
from dougong.contracts import Capabilities, KernelReport
from dougong.describe import ModelNeeds
from dougong.engine.candidates import agreed_kernels, without_failed
from dougong.engine.file_target import target_in_file
from dougong.engine.kv_sizing import with_block_size
from dougong.engine.one_device import open_present_device
from dougong.engine.outlined_model import outlined_model
from dougong.engine.plan_target import PlanTarget, device_index, target_here
from dougong.engine.saved_plan import check_same_plan, saved_kernels, with_saved_choices
from dougong.errors import ConfigError
from dougong.models.registry import ModelRegistry
from dougong.ops.assignments import SAMPLER_PREFIX
from dougong.planner import ExecutionPlan, PlanInputs, plan
from dougong.platforms import (
    LoadedPlatform,
    check_conformance,
    conformance_of,
    read_kernels,
)


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """A plan with all it was made from.

    Attributes:
        args: The user's wishes, those of a saved plan among them.
        inputs: What the planner was told.
        plan: What it decided.
        knows_weights: The headers of all weight files were read, not the configuration alone.
    """

    args: EngineArgs
    inputs: PlanInputs
    plan: ExecutionPlan
    knows_weights: bool

    @property
    def config(self) -> EngineConfig:
        """Every value settled but the number of KV blocks."""
        return with_block_size(self.inputs.config, self.plan.kv_cache.block_size)

    def knowing(
        self, *, kernels: KernelReport | None = None, failed: Mapping[str, str] | None = None
    ) -> PlannedStart:
        """Planned again with more knowledge.

        Args:
            kernels: What the ranks could import; ``None``: as before.
            failed: Implementation or backend → how it failed at its first use, beside those known
                before.

        Raises:
            ConfigError: As `plan_start`.
            PluginError: As `plan_start`.
        """
        candidates = without_failed(self.inputs.candidates, failed or {})
        if kernels is not None:
            candidates = replace(candidates, kernels=kernels)
        inputs = replace(self.inputs, candidates=candidates)
        return _planned(self.args, inputs, knows_weights=self.knows_weights)


def plan_start(
    args: EngineArgs,
    loaded: LoadedPlatform,
    files: CheckpointFiles,
    *,
    capabilities: Capabilities | None = None,
    kernels: KernelReport | None = None,
    failed: Mapping[str, str] | None = None,
) -> PlannedStart:
    """Decide what will run.

    Args:
        args: The user's wishes.
        loaded: The platform.
        files: The checkpoint; its weight files may be missing.
        capabilities: Of the device, where somebody asked before; ``None``: asked now.
        kernels: What the ranks could import; ``None``: nobody has tried yet.
        failed: Implementation or backend → how it failed at its first use.

    Raises:
        ConfigError: What was asked for cannot work; every problem with every candidate's reason.
        PluginError: A plugin broke its contract.
        DeviceError: The device does not answer.
    """
    target = target_here(loaded, capabilities, kernels)
    target = replace(target, candidates=without_failed(target.candidates, failed or {}))
    return _plan_for(with_saved_choices(args), target, files)


def explain(args: EngineArgs, capability_path: Path | None = None) -> ExecutionPlan:
    """The plan of a start that does not take place; no weight is read.

    Where the platform is here its kernel libraries are tried, as a start would, in a short-lived
    child if that opens a device; so what is shown is what a start would choose.

    Args:
        args: The user's wishes.
        capability_path: Plan for the device that this file describes, whether or not it is here.

    Raises:
        ConfigError: As `plan_start`.
        PluginError: As `plan_start`.
        DeviceError: As `plan_start`.
    """
    args = with_saved_choices(args)
    if capability_path is not None:
        _refuse_certificate_of_a_file(args)
        return _explain(args, target_in_file(capability_path, args)).plan
    loaded = open_present_device(args)
    check_conformance(conformance_of(loaded), args.require_conformance)
    planned = _explain(args, target_here(loaded))
    # What is refused without them is refused before they are tried.
    kernels = agreed_kernels([read_kernels(loaded, device_index(loaded))])
    return planned.knowing(kernels=kernels).plan


def _refuse_certificate_of_a_file(args: EngineArgs) -> None:
    if args.require_conformance is not None:
        raise ConfigError(
            f"--require-conformance {args.require_conformance} asks for the certificate of an "
            "installed wheel, and a capability file describes a device without one. Leave one out."
        )


def _explain(args: EngineArgs, target: PlanTarget) -> PlannedStart:
    files = resolve_reference(args.model, revision=args.revision, needs_weights=False)
    return _plan_for(args, target, files)


def _plan_for(args: EngineArgs, target: PlanTarget, files: CheckpointFiles) -> PlannedStart:
    switches, problems = _read_switches(args, target)
    with _told_with(problems, files.reference, only_beside=True):
        told = outlined_model(files, ModelRegistry(target.registrations))
        changes = target.propose(view_of_wishes(args, told.model))
    resolution = resolve(
        args, told.model, target.capabilities, platform=target.platform, changes=changes
    )
    max_model_len = resolution.config.scheduler.max_model_len
    inputs = PlanInputs(
        needs=_needs(told.needs, resolution.config),
        config=resolution.config,
        decisions=resolution.decisions,
        capabilities=target.capabilities,
        candidates=target.candidates,
        # Of a model that cannot be built nobody knows which ops it has.
        switches=OpSwitches() if told.refusal else switches,
        platform=target.platform,
        platform_wheel=target.wheel,
        platform_reasons=target.reasons,
        platforms_not_here=target.not_here,
        environment=target.environment,
        readable_formats=told.readable_formats,
        is_strict=bool(args.strict),
        choices=args.choices,
        checkpoint=told.identity,
        notes=told.notes(max_model_len),
    )
    problems = (*resolution.problems, *problems)
    if told.refusal:
        raise _refused_with(told.refusal, inputs, problems)
    return _planned(args, inputs, knows_weights=told.knows_weights, problems=problems)


def _needs(needs: ModelNeeds, config: EngineConfig) -> ModelNeeds:
    """Without the sampler where no token is drawn."""
    if config.pooling is None:
        return needs
    ops = tuple(one for one in needs.ops if not one.path.startswith(SAMPLER_PREFIX))
    return replace(needs, ops=ops)


def _planned(
    args: EngineArgs, inputs: PlanInputs, *, knows_weights: bool, problems: Sequence[str] = ()
) -> PlannedStart:
    with _told_with(problems, inputs.config.model.reference):
        decided = plan(inputs)
    # Until libraries were tried, those of a saved plan are taken to be there: everything else that
    # changed since is refused before a device is opened.
    assumed = saved_kernels(args) if inputs.candidates.kernels is None else None
    check_same_plan(args, plan(_with_kernels(inputs, assumed)) if assumed else decided)
    return PlannedStart(args, inputs, decided, knows_weights)


def _refused_with(refusal: ConfigError, inputs: PlanInputs, problems: Sequence[str]) -> ConfigError:
    """The refusal of a model, with whatever else is wrong."""
    try:
        with _told_with(problems, inputs.config.model.reference):
            plan(inputs)
    except ConfigError as exc:
        told = (*(refusal.problems or (str(refusal),)), *(exc.problems or (str(exc),)))
        return ConfigError(f"{inputs.config.model.reference} cannot run as asked:", told)
    return refusal


def _with_kernels(inputs: PlanInputs, kernels: KernelReport) -> PlanInputs:
    return replace(inputs, candidates=replace(inputs.candidates, kernels=kernels))


def _read_switches(args: EngineArgs, target: PlanTarget) -> tuple[OpSwitches, tuple[str, ...]]:
    """What was said of ops, and what is wrong with it."""
    try:
        known = target.candidates.op_keys
        return parse_op_switches(args.custom_ops, args.op or (), known), ()
    except ConfigError as exc:
        return OpSwitches(), exc.problems or (str(exc),)


@contextmanager
def _told_with(
    problems: Sequence[str], reference: str, *, only_beside: bool = False
) -> Iterator[None]:
    """Tell problems with those that come up in the block.

    Args:
        problems: Known before.
        reference: The model.
        only_beside: Where the block finds none, the caller goes on.

    Raises:
        ConfigError: With all of them.
    """
    head = f"{reference} cannot run as asked:"
    try:
        yield
    except ConfigError as exc:
        if not problems:
            raise
        raise ConfigError(head, (*problems, *(exc.problems or (str(exc),)))) from exc
    if problems and not only_beside:
        raise ConfigError(head, tuple(problems))
