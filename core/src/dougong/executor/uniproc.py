"""One rank, in the engine's own process."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from dougong.contracts import (
    GrammarMask,
    KernelReport,
    KVCacheConfig,
    ModelRunnerOutput,
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

    def execute(
        self, step: SchedulerOutput, grammar: GrammarMask | None = None
    ) -> ModelRunnerOutput:
        """See `Executor.execute`."""
        try:
            return self._worker.execute_model(step, grammar)
        except Exception:
            with self._classified(step.step_id):
                raise

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
