"""The engine: a scheduler and the ranks it drives, one step at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from dougong.config import EngineArgs
from dougong.contracts import LoRAWeights, StepStats
from dougong.engine.blame import note_blame
from dougong.engine.bring_up import shut_down_quietly
from dougong.engine.grammar_vocabulary import grammar_vocabulary
from dougong.engine.preparation import Preparation
from dougong.engine.startup import StartedEngine, start_engine
from dougong.engine.step_times import StepTimes
from dougong.engine.structured_requests import StructuredRequests, StructuredStats
from dougong.log import get_logger
from dougong.messages import LoRARef, Request, RequestDelta, SchedulerOutput
from dougong.scheduler import SchedulerStats

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The engine at one moment; plain data.

    Attributes:
        scheduler: Requests and KV cache.
        times: `StepTimes.summary`.
        ranks: What each rank's worker tells of itself.
        structured: Texts that follow a grammar.
    """

    scheduler: SchedulerStats
    times: dict[str, float]
    ranks: tuple[dict[str, Any], ...]
    structured: StructuredStats = field(default_factory=StructuredStats)


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
        self._adapters = started.adapters
        self._structured = StructuredRequests(
            lambda: grammar_vocabulary(started.files, started.report.vocab_size),
            started.report.vocab_size,
        )
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
        if request.sampling_params.structured_output is None:
            self._schedule(request)
            return
        self._scheduler.limits.check_request(request)
        self._structured.add(request)

    def abort(self, request_ids: Iterable[str]) -> list[str]:
        """End requests wherever they stand; see `Scheduler.abort`."""
        request_ids = list(request_ids)
        return self._structured.abort(request_ids) + self._scheduler.abort(request_ids)

    def has_requests(self) -> bool:
        """Whether any request has not ended."""
        return self._scheduler.has_requests() or self._structured.has_waiting()

    def step(self) -> list[RequestDelta]:
        """Compute one step; empty where there was nothing to compute.

        Raises:
            DeviceError: A device failed; the engine is of no further use.
        """
        refused = self._admit_structured() if self._structured.has_waiting() else []
        begin = perf_counter()
        step = self._scheduler.schedule()
        if step is None:
            return refused
        mask = self._structured.start_masks(self._scheduler.due_among)
        scheduled = perf_counter()
        try:
            output = self._executor.execute(step, mask)
        except Exception as exc:
            note_blame(exc, self.report.plan, self._registrations)
            raise
        computed = perf_counter()
        deltas = self._scheduler.update(output)
        if mask is not None:
            deltas, ended = self._structured.take(deltas)
            self._scheduler.abort(ended)
        end = perf_counter()
        self.times.add(scheduled - begin, computed - scheduled, end - computed)
        if self._wants_steps:
            self._tell_plugins(step, end - begin)
        return refused + deltas if refused else deltas

    def stats(self) -> EngineStats:
        """The engine now; never waits for a device."""
        return EngineStats(
            scheduler=self._scheduler.stats(),
            times=dict(self.times.summary()),
            ranks=tuple(dict(rank) for rank in self._executor.collect()),
            structured=self._structured.stats(),
        )

    def load_lora(self, name: str, weights: LoRAWeights) -> LoRARef:
        """Load an adapter, between two steps; see `LoadedAdapters.load`."""
        return self._adapters.load(name, weights)

    def check_can_load_lora(self, name: str) -> None:
        """See `LoadedAdapters.check_can_load`."""
        self._adapters.check_can_load(name)

    def unload_lora(self, name: str) -> LoRARef:
        """Let an adapter go; see `LoadedAdapters.unload`."""
        return self._adapters.unload(name)

    def health(self) -> None:
        """Return if every rank answers.

        Raises:
            DeviceError: One does not.
        """
        self._executor.health()

    def shutdown(self) -> None:
        """Free everything; callable twice."""
        self._structured.close()
        self._executor.shutdown()

    def _admit_structured(self) -> list[RequestDelta]:
        """Schedule requests whose grammar is ready; where nothing else is to do, wait a moment."""
        if not self._scheduler.has_requests():
            self._structured.wait()
        return self._structured.admit(self._schedule)

    def _schedule(self, request: Request) -> None:
        if request.lora is not None:
            self._adapters.check(request.lora)
        self._scheduler.add(request)

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
