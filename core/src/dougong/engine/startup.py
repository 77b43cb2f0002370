"""From wishes to an engine that is ready: every choice made, and every reason kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dougong.checkpoint import CheckpointFiles
from dougong.config import EngineArgs, EngineConfig
from dougong.contracts import LoRAWeights, Worker, WorkerContext
from dougong.engine.adapters import LoadedAdapters, load_at_start, read_at_start
from dougong.engine.bring_up import ReadyRanks, bring_up, shut_down_quietly
from dougong.engine.graph_report import GraphReport, graph_report
from dougong.engine.kv_sizing import check_block_sizes
from dougong.engine.plan_target import device_index
from dougong.engine.planning import PlannedStart
from dougong.engine.platform_answers import ask_platform
from dougong.engine.preparation import Preparation, prepare, warn_of_late_faults
from dougong.engine.start_report import MemoryReport, StartReport, fault_sentences
from dougong.errors import ConfigError, PluginError
from dougong.executor import Executor, UniprocExecutor
from dougong.messages import LoRARef
from dougong.planner import ExecutionPlan
from dougong.platforms import LoadedPlatform, check_runtime, load_class
from dougong.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class StartedEngine:
    """What a start leaves behind.

    Attributes:
        loaded: The platform with its hooks.
        config: Final values.
        executor: Ready for the first step.
        scheduler: Empty.
        report: For log, status and benchmarks.
        files: The model's.
        adapters: Those that the options name are loaded.
    """

    loaded: LoadedPlatform
    config: EngineConfig
    executor: Executor
    scheduler: Scheduler
    report: StartReport
    files: CheckpointFiles
    adapters: LoadedAdapters


def start_engine(args: EngineArgs, prepared: Preparation | None = None) -> StartedEngine:
    """Make everything ready for the first request.

    Args:
        args: The user's wishes.
        prepared: Platform, files and plan, where whoever starts the engine has them already.

    Raises:
        ConfigError: What was asked for cannot work.
        PluginError: A plugin broke its contract.
        DeviceError: The device failed.
    """
    if prepared is None:
        prepared = prepare(args)
    loaded, seconds = prepared.loaded, dict(prepared.seconds)
    loaded.hooks.process_start("engine", None)
    try:
        named = read_at_start(_named_adapters(prepared.planned.config))
        check_runtime(loaded.platform, loaded.selection.row)
        worker_cls = _worker_cls(loaded)
        check_worker_makes_vectors(worker_cls, prepared.planned.config, loaded.selection.platform)

        def make_executor(planned: PlannedStart) -> Executor:
            return UniprocExecutor(worker_cls, _worker_context(loaded, planned))

        ready = bring_up(prepared.planned, make_executor, seconds)
    except SystemExit as exc:
        raise PluginError(
            f"Platform {loaded.selection.platform} ({loaded.selection.row.wheel}) tried to end the "
            f"program while it loaded the model (exit code {exc.code}); report this to its vendor.",
            plugin=loaded.selection.platform,
        ) from exc
    warn_of_late_faults(loaded)
    scheduler = _scheduler(ready)
    adapters = _adapters(ready, scheduler, named)
    return StartedEngine(
        loaded=loaded,
        config=ready.planned.config,
        executor=ready.executor,
        scheduler=scheduler,
        report=_report(prepared, ready, scheduler, seconds, adapters.refs),
        files=prepared.files,
        adapters=adapters,
    )


def _named_adapters(config: EngineConfig) -> tuple[tuple[str, str], ...]:
    return () if config.lora is None else config.lora.adapters


def _adapters(
    ready: ReadyRanks, scheduler: Scheduler, named: Sequence[tuple[str, LoRAWeights]]
) -> LoadedAdapters:
    """Slots, with the adapters that were named; where one does not fit all is freed."""
    lora = ready.planned.plan.lora.assignment
    max_loras = 0 if lora is None else lora.max_loras
    adapters = LoadedAdapters(max_loras, ready.executor.set_lora, scheduler.num_using)
    try:
        load_at_start(adapters, named)
    except BaseException:
        shut_down_quietly(ready.executor)
        raise
    return adapters


def _worker_cls(loaded: LoadedPlatform) -> type[Worker]:
    name = loaded.selection.platform
    target = ask_platform(name, "get_worker_cls", loaded.platform.get_worker_cls)
    return load_class(target, Worker, loaded.selection.row)


def check_worker_makes_vectors(
    worker_cls: type[Worker], config: EngineConfig, platform: str
) -> None:
    """Refuse a model that makes vectors where the platform's worker knows nothing of them.

    Raises:
        ConfigError: It does not.
    """
    if config.pooling is not None and not worker_cls.makes_vectors:
        raise ConfigError(
            f"{config.model.reference} makes vectors (runner=pooling), and the worker of platform "
            f"{platform} generates text alone (Worker.makes_vectors). Choose another platform."
        )


def _worker_context(loaded: LoadedPlatform, planned: PlannedStart) -> WorkerContext:
    config = planned.config
    return WorkerContext(
        platform=loaded.platform,
        config=config.view(),
        model_path=config.model.path,
        registrations=loaded.registrations,
        device_index=device_index(loaded),
    )


def _scheduler(ready: ReadyRanks) -> Scheduler:
    """The scheduler, which must count in the blocks that the ranks store; else they are freed."""
    try:
        scheduler = Scheduler(ready.planned.config.scheduler, ready.sized.scheduler)
        check_block_sizes(scheduler.allocator.block_size, ready.start.groups)
    except BaseException:
        shut_down_quietly(ready.executor)
        raise
    return scheduler


def _report(
    prepared: Preparation,
    ready: ReadyRanks,
    scheduler: Scheduler,
    seconds: dict[str, float],
    loras: tuple[LoRARef, ...],
) -> StartReport:
    loaded = prepared.loaded
    config, selection = ready.planned.config, loaded.selection
    start, sized = ready.start, ready.sized
    plan = _final_plan(ready)
    return StartReport(
        model=config.model.reference,
        architecture=config.model.architecture,
        vocab_size=config.model.vocab_size,
        dtype=config.compute.dtype,
        platform=selection.platform,
        devices=tuple(device.name for device in selection.devices),
        platform_reasons=selection.reasons,
        conformance=prepared.conformance.sentence,
        plugins=tuple(row.sentence() for row in loaded.table.rows),
        plugin_faults=fault_sentences(loaded.table),
        decisions=plan.decisions,
        plan=plan,
        graphs=_graphs(ready),
        notes=tuple(dict.fromkeys(note for one in start.loads for note in one.notes)),
        memory=MemoryReport(
            limit=config.memory.limit_bytes,
            budget=config.memory.budget_bytes,
            weights=start.weight_bytes,
            kv_cache=sized.size.num_bytes,
        ),
        num_kv_blocks=sized.scheduler.num_usable_blocks,
        block_size=sized.scheduler.block_size,
        limits=scheduler.limits,
        takes_grammar_masks=ready.executor.takes_grammar_masks,
        loras=loras,
        pooling=config.pooling,
        seed=config.compute.seed,
        seconds=seconds,
    )


def _graphs(ready: ReadyRanks) -> GraphReport | None:
    """What became of the plan's graphs; where it has any, and they cannot be told of, all is
    freed."""
    if not ready.planned.plan.mode.graphs:
        return None
    try:
        return graph_report(ready.executor)
    except BaseException:
        shut_down_quietly(ready.executor)
        raise


def _final_plan(ready: ReadyRanks) -> ExecutionPlan:
    """The plan with what was settled once memory was measured."""
    plan, decision = ready.planned.plan, ready.sized.decision
    cache = replace(plan.kv_cache, num_blocks=ready.sized.size.num_blocks)
    kept = (one for one in plan.decisions if one.field != decision.field)
    return replace(plan, kv_cache=cache).with_decisions((*kept, decision))
