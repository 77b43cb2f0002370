"""A scheduler with a fake worker behind it, checked after every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dougong.config.cache import CacheConfig
from dougong.config.scheduler import SchedulerConfig, SchedulingPolicy
from dougong.kv_cache.audit import audit
from dougong.messages import (
    FinishReason,
    LoRARef,
    Request,
    RequestDelta,
    SamplingParams,
    SchedulerOutput,
)
from dougong.scheduler import Scheduler
from tests.unit.scheduler.fake_worker import FakeWorker, expected_generation


def make_request(
    request_id: str,
    prompt: int | Sequence[int],
    *,
    max_tokens: int | None = 8,
    priority: int = 0,
    fork_of: str | None = None,
    eos: frozenset[int] = frozenset(),
    lora: LoRARef | None = None,
    **params: object,
) -> Request:
    """A request; a prompt given as a number is that many tokens, different for each id."""
    if isinstance(prompt, int):
        prompt = [(hash(request_id) + 7 * position) % 1000 for position in range(prompt)]
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        sampling_params=SamplingParams(temperature=0.0, max_tokens=max_tokens, **params),  # type: ignore[arg-type] # by name
        eos_token_ids=eos,
        priority=priority,
        fork_of=fork_of,
        lora=lora,
    )


@dataclass
class Answer:
    tokens: list[int] = field(default_factory=list)
    deltas: list[RequestDelta] = field(default_factory=list)

    @property
    def reason(self) -> FinishReason | None:
        return self.deltas[-1].finish_reason if self.deltas else None


class Harness:
    def __init__(
        self,
        *,
        block_size: int = 4,
        num_blocks: int = 64,
        max_num_seqs: int = 8,
        budget: int = 64,
        max_model_len: int = 128,
        policy: SchedulingPolicy = "fcfs",
        threshold: int | None = None,
        caching: bool = True,
        groups: int = 1,
        reserved: int = 0,
    ) -> None:
        self.scheduler = Scheduler(
            SchedulerConfig(
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=budget,
                max_model_len=max_model_len,
                policy=policy,
                long_prefill_token_threshold=threshold,
            ),
            CacheConfig(
                block_size=block_size,
                num_blocks=num_blocks,
                enable_prefix_caching=caching,
                num_groups=groups,
                reserved_blocks=reserved,
            ),
        )
        self.worker = FakeWorker(block_size)
        self.requests: dict[str, Request] = {}
        self.answers: dict[str, Answer] = {}
        self.steps: list[SchedulerOutput] = []

    def add(self, request: Request) -> None:
        self.scheduler.add(request)
        self.requests[request.request_id] = request
        self.answers[request.request_id] = Answer()

    def abort(self, request_id: str) -> None:
        self.scheduler.abort([request_id])
        self.requests.pop(request_id, None)
        self.check()

    def step(self, meanwhile: Callable[[], None] | None = None) -> SchedulerOutput | None:
        """One step; ``meanwhile`` runs while the worker has it."""
        output = self.scheduler.schedule()
        self.check()
        if output is None:
            return None
        self.steps.append(output)
        assert output.total_num_scheduled_tokens <= self.scheduler.config.max_num_batched_tokens
        assert len(output.num_scheduled_tokens) <= self.scheduler.config.max_num_seqs
        answer = self.worker.execute(output)
        if meanwhile is not None:
            meanwhile()
        for delta in self.scheduler.update(answer):
            self._take(delta)
        self.check()
        return output

    def run(self) -> None:
        """Step until everything has ended, and compare with the model running alone.

        However small the budget, a step computes a token that is not lost again to preemption: of
        the first request in running order. So the steps are bounded by the tokens to come.
        """
        limits = self.scheduler.limits
        max_steps = sum(limits.max_len_of(request) for request in self.requests.values()) + 1
        for _ in range(max_steps):
            if not self.scheduler.has_requests():
                break
            assert self.step() is not None, "requests wait and nothing is scheduled"
        assert not self.scheduler.has_requests(), f"not finished after {max_steps} steps"
        self.check_answers()
        usage = self.scheduler.allocator.usage()
        assert usage.num_held_blocks == 0

    def check_answers(self) -> None:
        for request_id, request in self.requests.items():
            expected = expected_generation(request, max_len=self.scheduler.limits.max_len)
            assert self.answers[request_id].tokens == expected, request_id
            assert self.answers[request_id].reason is not None

    def check(self) -> None:
        assert audit(self.scheduler.allocator, self.scheduler.block_tables()) == []

    def _take(self, delta: RequestDelta) -> None:
        assert delta.request_id in self.requests, "a delta of a request that was aborted"
        answer = self.answers[delta.request_id]
        assert answer.reason is None, "a delta after the last one"
        answer.tokens += delta.new_token_ids
        answer.deltas.append(delta)
