"""One rank, in the engine's own process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from dougong.contracts import (
    GrammarMask,
    KernelReport,
    KVCacheConfig,
    LoRAWeights,
    LoRAWorker,
    ModelRunnerOutput,
    PluginError,
    RankPlan,
    SchedulerOutput,
    Worker,
    WorkerContext,
)
from dougong.executor.base import Executor, LoadedRanks
from dougong.worker.faults import classified


class UniprocExecutor(Executor):
    """Calls one worker directly.

    Args:
        worker_cls: From `Platform.get_worker_cls`.
        context: What to run and where.
    """

    def __init__(self, worker_cls: type[Worker], context: WorkerContext) -> None:
        self._context = context
        self._worker = worker_cls(context)

    def open(self) -> tuple[KernelReport, ...]:
        """See `Executor.open`."""
        with self._classified():
            return (self._worker.init_device(),)

    def load(self, plan: RankPlan) -> LoadedRanks:
        """See `Executor.load`."""
        with self._classified():
            load = self._worker.load_model(plan)
            groups = self._worker.get_kv_cache_groups()
            available_bytes = self._worker.determine_available_memory()
        return LoadedRanks((load,), groups, available_bytes)

    def initialize(self, config: KVCacheConfig) -> None:
        """See `Executor.initialize`."""
        with self._classified():
            self._worker.initialize_kv_cache(config)
            self._worker.warm_up()

    @property
    def takes_grammar_masks(self) -> bool:
        """See `Executor.takes_grammar_masks`."""
        return self._worker.takes_grammar_masks

    def execute(
        self, step: SchedulerOutput, grammar: Callable[[], GrammarMask] | None = None
    ) -> ModelRunnerOutput:
        """See `Executor.execute`."""
        worker = self._worker
        try:
            if grammar is None:
                return worker.execute_model(step)
            handle = worker.submit(step)
            return worker.sample(handle, grammar()).result()
        except Exception:
            with self._classified(step.step_id):
                raise

    def set_lora(self, slot: int, weights: LoRAWeights | None) -> None:
        """See `Executor.set_lora`."""
        worker = self._worker
        if not isinstance(worker, LoRAWorker):
            name = self._context.platform.name
            raise PluginError(
                f"{type(worker).__module__}:{type(worker).__qualname__} has no set_lora, and "
                f"platform {name!r} names a wrapper for adapters. Its vendor must take back one of "
                "the two.",
                plugin=name,
            )
        with self._classified():
            worker.set_lora(slot, weights)

    def health(self) -> None:
        """See `Executor.health`."""
        with self._classified():
            self._worker.health()

    def collect(self) -> tuple[Mapping[str, Any], ...]:
        """See `Executor.collect`."""
        return (self._worker.collect(),)

    def shutdown(self) -> None:
        """See `Executor.shutdown`."""
        with self._classified():
            self._worker.shutdown()

    def _classified(self, step_id: int | None = None) -> AbstractContextManager[None]:
        context = self._context
        return classified(
            context.platform,
            device_index=context.device_index,
            rank=context.rank,
            step_id=step_id,
        )
