"""From wishes to an engine that is ready: every choice made, and every reason kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from dougong.checkpoint import (
    CheckpointFiles,
    check_complete,
    read_config,
    read_weight_summary,
    resolve_reference,
)
from dougong.config import (
    Decision,
    EngineArgs,
    EngineConfig,
    ModelConfig,
    Resolution,
    resolve,
    view_of_wishes,
)
from dougong.contracts import Capabilities, ConfigView, Worker, WorkerContext
from dougong.describe import describe_model
from dougong.engine.kv_sizing import SizedCache, size_kv_cache, with_block_size
from dougong.engine.start_report import MemoryReport, StartReport
from dougong.errors import DougongError, PluginError
from dougong.executor import Executor, LoadedRanks, UniprocExecutor
from dougong.models.registry import ModelRegistry
from dougong.platforms import LoadedPlatform, load_class, open_platform
from dougong.scheduler import RequestLimits, Scheduler

T = TypeVar("T")


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


def start_engine(
    args: EngineArgs,
    *,
    loaded: LoadedPlatform | None = None,
    files: CheckpointFiles | None = None,
) -> StartedEngine:
    """Make everything ready for the first request.

    Args:
        args: The user's wishes.
        loaded: The platform, where it was opened already; otherwise ``args`` says which.
        files: The model's files, where they were found already.

    Raises:
        ConfigError: What was asked for cannot work.
        PluginError: A plugin broke its contract.
        DeviceError: The device failed.
    """
    seconds: dict[str, float] = {}
    with _timed(seconds, "platform"):
        if loaded is None:
            loaded = open_platform(args.platform, args.devices)
    with _timed(seconds, "describe"):
        if files is None:
            files = resolve_reference(args.model, revision=args.revision)
        check_complete(files)
        model = _describe(files, loaded)
        resolution = resolve_for_platform(args, model, loaded)
    executor = UniprocExecutor(
        _worker_cls(loaded), _worker_context(loaded, resolution.config.view(), model)
    )
    try:
        with _timed(seconds, "load"):
            start = executor.start()
        with _timed(seconds, "warm_up"):
            sized = size_kv_cache(resolution.config, start)
            executor.initialize(sized.worker)
    except BaseException:
        _shut_down_quietly(executor)
        raise
    config = with_block_size(resolution.config, sized.scheduler.block_size)
    scheduler = Scheduler(config.scheduler, sized.scheduler)
    resolution = replace(resolution, config=config)
    report = _report(loaded, resolution, start, sized, scheduler.limits, seconds)
    return StartedEngine(loaded, config, executor, scheduler, report)


def resolve_for_platform(
    args: EngineArgs, model: ModelConfig, loaded: LoadedPlatform
) -> Resolution:
    """Ask the platform for its facts and proposals, then settle every value."""
    platform, name = loaded.platform, loaded.selection.platform
    index = _device_index(loaded)
    facts = _query(name, "facts", lambda: platform.facts(index))
    claims = _query(name, "claims", lambda: platform.claims(facts.arch))
    view = view_of_wishes(args, model)
    changes = _query(
        name, "check_and_update_config", lambda: platform.check_and_update_config(view)
    )
    return resolve(args, model, Capabilities(claims, facts), platform=name, changes=changes)


def _describe(files: CheckpointFiles, loaded: LoadedPlatform) -> ModelConfig:
    known = ModelRegistry(loaded.registrations).names()
    return describe_model(files, read_config(files), read_weight_summary(files), known)


def _worker_cls(loaded: LoadedPlatform) -> type[Worker]:
    target = _query(loaded.selection.platform, "get_worker_cls", loaded.platform.get_worker_cls)
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


def _query(plugin: str, name: str, ask: Callable[[], T]) -> T:
    """A platform's answer; one that raises is the plugin's fault, never a yes or a no."""
    try:
        return ask()
    except DougongError:
        raise
    except Exception as exc:
        raise PluginError(
            f"Platform {plugin} failed to answer {name}(): {type(exc).__name__}: {exc}. "
            "A query must not raise; report this to the plugin's vendor.",
            plugin=plugin,
        ) from exc


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
        devices=tuple(device.name for device in selection.devices[:1]),
        platform_reasons=selection.reasons,
        plugins=tuple(row.sentence() for row in loaded.table.rows),
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


def _shut_down_quietly(executor: Executor) -> None:
    """Free what a failed start left; the failure itself is what the user must see."""
    try:
        executor.shutdown()
    except Exception:  # noqa: BLE001 - a vendor's code, on its way out
        return


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - begin
