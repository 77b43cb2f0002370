"""A worker of the plugin's own class, led through its life, and fed with steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dougong.contracts import (
    KVCacheConfig,
    ModelRunnerOutput,
    SamplingParams,
    SchedulerOutput,
    StepHandle,
    Worker,
    WorkerContext,
)
from dougong.contracts.registration import Registration
from dougong.engine.planning import PlannedStart
from dougong.engine.preparation import Preparation
from dougong.messages.step import CachedRequestData, NewRequestData
from dougong.platforms import load_class

GREEDY = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True)


@dataclass
class Driven:
    """A worker and what was told to it.

    Attributes:
        worker: Of the plugin's class.
        planned: What it obeys.
        num_blocks: To allocate, those that the backend keeps left out.
        facts: What it answered on its way up, by name.
        states: After each call.
    """

    worker: Worker
    planned: PlannedStart
    num_blocks: int
    facts: dict[str, Any] = field(default_factory=dict)
    states: list[tuple[str, str]] = field(default_factory=list)
    _next_step: int = 0
    _next_request: int = 0
    _finished: list[str] = field(default_factory=list)
    _reserved: int = 0
    _num_groups: int = 1

    def init_device(self) -> None:
        kernels = self._noted("init_device", self.worker.init_device)
        self.planned = self.planned.knowing(kernels=kernels)

    def load_model(self) -> None:
        report = self._noted(
            "load_model", lambda: self.worker.load_model(self.planned.plan.rank_plan)
        )
        self.facts["load"] = report
        groups = self._noted("get_kv_cache_groups", self.worker.get_kv_cache_groups)
        self.facts["groups"] = groups
        self._reserved = max(layout.reserved_blocks for _, layout in groups)
        self._num_groups = len(groups)

    def determine_available_memory(self) -> int:
        found: int = self._noted(
            "determine_available_memory", self.worker.determine_available_memory
        )
        return found

    def initialize_kv_cache(self) -> None:
        groups = tuple(group for group, _ in self.facts["groups"])
        config = KVCacheConfig(self.num_blocks + self._reserved, groups)
        self._noted("initialize_kv_cache", lambda: self.worker.initialize_kv_cache(config))

    def warm_up(self) -> None:
        self._noted("warm_up", self.worker.warm_up)

    def shutdown(self) -> None:
        self._noted("shutdown", self.worker.shutdown)

    def up(self) -> Driven:
        """Through all of its life until it runs."""
        self.init_device()
        self.load_model()
        self.facts["available"] = self.determine_available_memory()
        self.initialize_kv_cache()
        self.warm_up()
        return self

    def step(
        self,
        new: Sequence[NewRequestData] = (),
        cached: Sequence[str] = (),
        counts: dict[str, int] | None = None,
    ) -> SchedulerOutput:
        """The next step's message; the worker has to take it."""
        scheduled = counts or {
            **{one.request_id: len(one.token_ids) - one.num_computed_tokens for one in new},
            **dict.fromkeys(cached, 1),
        }
        made = SchedulerOutput(
            step_id=self._next_step,
            scheduled_new_reqs=list(new),
            scheduled_cached_reqs=CachedRequestData(list(cached), [None] * len(cached)),
            num_scheduled_tokens=scheduled,
            total_num_scheduled_tokens=sum(scheduled.values()),
            finished_req_ids=self._finished,
        )
        self._finished = []
        self._next_step += 1
        return made

    def request(self, prompt: Sequence[int], room: int) -> NewRequestData:
        """A new request with blocks for its prompt and ``room`` more tokens; none shared."""
        size = self.planned.plan.kv_cache.block_size
        count = -(-(len(prompt) + room) // size)
        first = self._reserved + (self._next_request * count) % max(1, self.num_blocks - count)
        blocks = list(range(first, first + count))
        self._next_request += 1
        return NewRequestData(
            request_id=f"r{self._next_request}",
            token_ids=list(prompt),
            num_prompt_tokens=len(prompt),
            sampling_params=GREEDY,
            stop_token_ids=frozenset(),
            block_ids=tuple(list(blocks) for _ in range(self._num_groups)),
            num_computed_tokens=0,
        )

    def forget(self, request_ids: Sequence[str]) -> None:
        """Requests that end with the next step."""
        self._finished = [*self._finished, *request_ids]

    def generate(self, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        """Greedy answers to prompts that are computed together."""
        requests = [self.request(prompt, count) for prompt in prompts]
        names = [one.request_id for one in requests]
        answers: dict[str, list[int]] = {name: [] for name in names}
        self._take(answers, self.worker.execute_model(self.step(new=requests)))
        for _ in range(count - 1):
            self._take(answers, self.worker.execute_model(self.step(cached=names)))
        self.forget(names)
        return [answers[name] for name in names]

    def submit(self, step: SchedulerOutput) -> StepHandle:
        """A step in flight, its tokens chosen."""
        return self.worker.sample(self.worker.submit(step))

    def _take(self, answers: dict[str, list[int]], output: ModelRunnerOutput) -> None:
        for name, tokens in zip(output.req_ids, output.sampled_token_ids, strict=True):
            answers[name] += tokens

    def _noted(self, call: str, run: Callable[[], Any]) -> Any:
        result = run()
        self.states.append((call, str(self.worker.state)))
        return result


def make_worker(
    start: Preparation,
    *,
    num_blocks: int = 64,
    device_index: int = 0,
    registrations: tuple[Registration, ...] | None = None,
) -> Driven:
    """A worker as an engine would make it."""
    loaded, planned = start.loaded, start.planned
    target = loaded.platform.get_worker_cls()
    cls = load_class(target, Worker, loaded.selection.row)
    context = WorkerContext(
        platform=loaded.platform,
        config=planned.config.view(),
        model_path=planned.config.model.path,
        registrations=loaded.registrations if registrations is None else registrations,
        device_index=device_index,
    )
    return Driven(cls(context), planned, num_blocks)


__all__ = ["GREEDY", "Driven", "make_worker"]
