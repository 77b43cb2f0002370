"""From wishes to an engine that is ready: every choice made, and every reason kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from dougong.checkpoint import CheckpointFiles, check_complete, read_config, read_weight_summary
from dougong.config import (
    Decision,
    EngineArgs,
    EngineConfig,
    ModelConfig,
    Resolution,
    resolve,
    view_of_wishes,
)
from dougong.contracts import ConfigView, Worker, WorkerContext
from dougong.describe import describe_model
from dougong.engine.kv_sizing import SizedCache, size_kv_cache, with_block_size
from dougong.engine.platform_answers import ask_platform, capabilities_of
from dougong.engine.preparation import (
    Preparation,
    check_attention_backend,
    prepare,
    warn_of_late_faults,
)
from dougong.engine.start_report import MemoryReport, StartReport, fault_sentences
from dougong.engine.start_times import timed
from dougong.errors import PluginError
from dougong.executor import Executor, LoadedRanks, UniprocExecutor
from dougong.log import get_logger
from dougong.models.registry import ModelRegistry
from dougong.platforms import LoadedPlatform, check_runtime, load_class
from dougong.scheduler import RequestLimits, Scheduler

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StartedEngine:
    """What a start leaves behind.

    Attributes:
        loaded: The platform with its hooks.
        config: Final values.
        executor: Ready for the first step.
        scheduler: Empty.
        report: For log, status and benchmarks.
    """

    loaded: LoadedPlatform
    config: EngineConfig
    executor: Executor
    scheduler: Scheduler
    report: StartReport


def start_engine(args: EngineArgs, prepared: Preparation | None = None) -> StartedEngine:
    """Make everything ready for the first request.

    Args:
        args: The user's wishes.
        prepared: The platform and the files, where whoever starts the engine has them already.

    Raises:
        ConfigError: What was asked for cannot work.
        PluginError: A plugin broke its contract.
        DeviceError: The device failed.
    """
    if prepared is None:
        prepared = prepare(args)
    loaded, seconds = prepared.loaded, dict(prepared.seconds)
    loaded.hooks.process_start("engine", None)
    with timed(seconds, "describe"):
        check_complete(prepared.files)
        model = _describe(prepared.files, loaded)
        resolution = resolve_for_platform(args, model, loaded)
    try:
        check_runtime(loaded.platform, loaded.selection.row)
        executor = UniprocExecutor(
            _worker_cls(loaded), _worker_context(loaded, resolution.config.view(), model)
        )
        start, sized = _load(executor, resolution.config, seconds)
    except SystemExit as exc:
        raise PluginError(
            f"Platform {loaded.selection.platform} ({loaded.selection.row.wheel}) tried to end the "
            f"program while it loaded the model (exit code {exc.code}); report this to its vendor.",
            plugin=loaded.selection.platform,
        ) from exc
    warn_of_late_faults(loaded)
    config = with_block_size(resolution.config, sized.scheduler.block_size)
    scheduler = Scheduler(config.scheduler, sized.scheduler)
    resolution = replace(resolution, config=config)
    report = _report(loaded, resolution, start, sized, scheduler.limits, seconds)
    return StartedEngine(loaded, config, executor, scheduler, report)


def shut_down_quietly(executor: Executor) -> None:
    """Free what a failed start left; the failure itself is what the user must see."""
    with suppress(Exception, SystemExit):  # a vendor's code, on its way out
        executor.shutdown()


def resolve_for_platform(
    args: EngineArgs, model: ModelConfig, loaded: LoadedPlatform
) -> Resolution:
    """Ask the platform for its facts and proposals, then settle every value."""
    platform, name = loaded.platform, loaded.selection.platform
    capabilities = capabilities_of(loaded, _device_index(loaded))
    view = view_of_wishes(args, model)
    changes = ask_platform(
        name, "check_and_update_config", lambda: platform.check_and_update_config(view)
    )
    resolution = resolve(args, model, capabilities, platform=name, changes=changes)
    backend = resolution.config.compute.attention_backend
    is_asked = args.attention_backend is not None
    check_attention_backend(platform, backend, proposed_by=None if is_asked else name)
    return resolution


def _load(
    executor: Executor, config: EngineConfig, seconds: dict[str, float]
) -> tuple[LoadedRanks, SizedCache]:
    """Bring the ranks up to their first step; where that fails they are shut down."""
    try:
        with timed(seconds, "load"):
            start = executor.start()
        with timed(seconds, "warm_up"):
            sized = size_kv_cache(config, start)
            executor.initialize(sized.worker)
    except BaseException:
        shut_down_quietly(executor)
        raise
    return start, sized


def _describe(files: CheckpointFiles, loaded: LoadedPlatform) -> ModelConfig:
    registry = ModelRegistry(loaded.registrations)
    for change in registry.changes:
        _logger.info("%s", change)
    return describe_model(files, read_config(files), read_weight_summary(files), registry.names())


def _worker_cls(loaded: LoadedPlatform) -> type[Worker]:
    name = loaded.selection.platform
    target = ask_platform(name, "get_worker_cls", loaded.platform.get_worker_cls)
    return load_class(target, Worker, loaded.selection.row)


def _worker_context(loaded: LoadedPlatform, view: ConfigView, model: ModelConfig) -> WorkerContext:
    return WorkerContext(
        platform=loaded.platform,
        config=view,
        model_path=model.path,
        registrations=loaded.registrations,
        device_index=_device_index(loaded),
    )


def _device_index(loaded: LoadedPlatform) -> int:
    return next(iter(loaded.selection.device_indices), 0)


def _report(
    loaded: LoadedPlatform,
    resolution: Resolution,
    start: LoadedRanks,
    sized: SizedCache,
    limits: RequestLimits,
    seconds: dict[str, float],
) -> StartReport:
    config, selection = resolution.config, loaded.selection
    load = start.loads[0]
    return StartReport(
        model=config.model.reference,
        architecture=config.model.architecture,
        vocab_size=config.model.vocab_size,
        dtype=config.compute.dtype,
        platform=selection.platform,
        devices=tuple(device.name for device in selection.devices),
        platform_reasons=selection.reasons,
        plugins=tuple(row.sentence() for row in loaded.table.rows),
        plugin_faults=fault_sentences(loaded.table),
        decisions=(*_settled_before(resolution, sized), *sized.decisions),
        attention_backends=dict(load.attention_backends),
        implementations={op: dict(bound) for op, bound in load.implementations.items()},
        notes=tuple(dict.fromkeys(note for one in start.loads for note in one.notes)),
        memory=MemoryReport(
            limit=config.memory.limit_bytes,
            budget=config.memory.budget_bytes,
            weights=start.weight_bytes,
            kv_cache=sized.size.num_bytes,
        ),
        num_kv_blocks=sized.scheduler.num_usable_blocks,
        block_size=sized.scheduler.block_size,
        limits=limits,
        seed=config.compute.seed,
        seconds=seconds,
    )


def _settled_before(resolution: Resolution, sized: SizedCache) -> Iterator[Decision]:
    """Decisions of the resolution that the sizing did not replace."""
    replaced = {decision.field for decision in sized.decisions}
    return (decision for decision in resolution.decisions if decision.field not in replaced)
