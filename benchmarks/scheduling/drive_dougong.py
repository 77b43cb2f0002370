"""Dougong's scheduler and block pool; no torch, no device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dougong import __version__
from dougong.config.cache import CacheConfig
from dougong.config.scheduler import SchedulerConfig
from dougong.messages import (
    ModelRunnerOutput,
    Request,
    RequestDelta,
    SamplingParams,
    SchedulerOutput,
)
from dougong.scheduler import Scheduler

from benchmarks.scheduling.workload import (
    BLOCK_SIZE,
    MAX_MODEL_LEN,
    TOKEN_BUDGET,
    Scenario,
    main,
)

TOKEN = 7


class DougongDriver:
    """The scheduler as the engine core holds it."""

    def __init__(self, scenario: Scenario) -> None:
        """Build a scheduler of the scenario's size."""
        self._scheduler = Scheduler(
            SchedulerConfig(
                max_num_seqs=scenario.num_running,
                max_num_batched_tokens=TOKEN_BUDGET,
                max_model_len=MAX_MODEL_LEN,
            ),
            CacheConfig(
                block_size=BLOCK_SIZE,
                num_blocks=scenario.num_blocks,
                enable_prefix_caching=scenario.prefix_caching,
            ),
        )

    def make_request(self, request_id: str, prompt: Sequence[int], max_tokens: int) -> Request:
        """The message the engine core receives."""
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=0.0)
        return Request(
            request_id=request_id, prompt_token_ids=tuple(prompt), sampling_params=sampling
        )

    def add(self, request: Any) -> None:
        """As the engine core does."""
        self._scheduler.add(request)

    def schedule(self) -> SchedulerOutput:
        """One step; there is always one here."""
        step = self._scheduler.schedule()
        assert step is not None, "requests are running in every scenario"
        return step

    def num_scheduled(self, step: SchedulerOutput) -> Mapping[str, int]:
        """Tokens per request."""
        return step.num_scheduled_tokens

    def answer(self, step: SchedulerOutput, due: Sequence[str]) -> ModelRunnerOutput:
        """One token for each due request."""
        return ModelRunnerOutput(step.step_id, list(due), [[TOKEN] for _ in due])

    def update(self, step: SchedulerOutput, answer: Any) -> list[RequestDelta]:
        """The scheduler knows its own step."""
        del step
        return self._scheduler.update(answer)

    def finished(self, update: Any) -> Sequence[str]:
        """Requests with a finish reason."""
        return [delta.request_id for delta in update if delta.finish_reason is not None]


if __name__ == "__main__":
    main(DougongDriver, {"dougong": __version__})
