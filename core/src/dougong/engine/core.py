"""The engine: a scheduler and the ranks it drives, one step at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from dougong.config import EngineArgs
from dougong.contracts import StepStats
from dougong.engine.blame import note_blame
from dougong.engine.bring_up import shut_down_quietly
from dougong.engine.preparation import Preparation
from dougong.engine.startup import StartedEngine, start_engine
from dougong.engine.step_times import StepTimes
from dougong.log import get_logger
from dougong.messages import Request, RequestDelta, SchedulerOutput
from dougong.scheduler import SchedulerStats

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The engine at one moment; plain data.

    Attributes:
        scheduler: Requests and KV cache.
        times: `StepTimes.summary`.
        ranks: What each rank's worker tells of itself.
    """

    scheduler: SchedulerStats
    times: dict[str, float]
    ranks: tuple[dict[str, Any], ...]


class EngineCore:
    """Runs requests to their end; not thread-safe, and knows no text.

    Args:
        started: From `start_engine`; `EngineCore.start` does both.

    Raises:
        PluginError: A plugin failed when it was told that the engine is ready; all is freed then.
    """

    def __init__(self, started: StartedEngine) -> None:
        self.report = started.report
        self.config = started.config
        self.times = StepTimes()
        self._scheduler = started.scheduler
        self._executor = started.executor
        self._hooks = started.loaded.hooks
        self._registrations = started.loaded.registrations
        self._wants_steps = self._hooks.wants_steps
        for line in self.report.lines():
            _logger.info("%s", line)
        for warning in self.report.warnings():
            _logger.warning("%s", warning)
        try:
            self._hooks.engine_ready(self.report.to_json())
        except BaseException:
            shut_down_quietly(self._executor)
            raise

    @classmethod
    def start(cls, args: EngineArgs, prepared: Preparation | None = None) -> EngineCore:
        """See `start_engine`."""
        return cls(start_engine(args, prepared))

    def add(self, request: Request) -> None:
        """Let ``request`` wait for its turn.

        Raises:
            RequestError: It can never be served, or its id is in use.
        """
        self._scheduler.add(request)

    def abort(self, request_ids: Iterable[str]) -> list[str]:
        """End requests wherever they stand; see `Scheduler.abort`."""
        return self._scheduler.abort(request_ids)

    def has_requests(self) -> bool:
        """Whether any request has not ended."""
        return self._scheduler.has_requests()

    def step(self) -> list[RequestDelta]:
        """Compute one step; empty where there was nothing to compute.

        Raises:
            DeviceError: A device failed; the engine is of no further use.
        """
        begin = perf_counter()
        step = self._scheduler.schedule()
        if step is None:
            return []
        scheduled = perf_counter()
        try:
            output = self._executor.execute(step)
        except Exception as exc:
            note_blame(exc, self.report.plan, self._registrations)
            raise
        computed = perf_counter()
        deltas = self._scheduler.update(output)
        end = perf_counter()
        self.times.add(scheduled - begin, computed - scheduled, end - computed)
        if self._wants_steps:
            self._tell_plugins(step, end - begin)
        return deltas

    def stats(self) -> EngineStats:
        """The engine now; never waits for a device."""
        return EngineStats(
            scheduler=self._scheduler.stats(),
            times=dict(self.times.summary()),
            ranks=tuple(dict(rank) for rank in self._executor.collect()),
        )

    def health(self) -> None:
        """Return if every rank answers.

        Raises:
            DeviceError: One does not.
        """
        self._executor.health()

    def shutdown(self) -> None:
        """Free everything; callable twice."""
        self._executor.shutdown()

    def _tell_plugins(self, step: SchedulerOutput, seconds: float) -> None:
        stats = self._scheduler.stats()
        num_decode_tokens = sum(1 for count in step.num_scheduled_tokens.values() if count == 1)
        self._hooks.step_done(
            StepStats(
                step_id=step.step_id,
                num_running=stats.num_running,
                num_waiting=stats.num_waiting,
                num_prefill_tokens=step.total_num_scheduled_tokens - num_decode_tokens,
                num_decode_tokens=num_decode_tokens,
                seconds=seconds,
            )
        )
