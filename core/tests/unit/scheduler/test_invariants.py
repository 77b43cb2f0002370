"""Random arrivals, forks, aborts and steps against every invariant, in pools that must preempt."""

from __future__ import annotations

import contextlib

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dougong.errors import RequestError
from tests.unit.scheduler.harness import Harness, make_request

PROFILE = settings(
    max_examples=60,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # shrinking a run of hundreds of steps takes longer than reading it
    suppress_health_check=list(HealthCheck),
)


class SchedulerMachine(RuleBasedStateMachine):
    """Whatever happens in whatever order, every request that is not aborted gets its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness()
        self.num_added = 0

    @initialize(
        block_size=st.sampled_from([1, 2, 3, 4]),
        num_blocks=st.integers(6, 16),
        max_num_seqs=st.sampled_from([1, 3, 6, 6]),
        spare_budget=st.integers(0, 20),
        max_model_len=st.sampled_from([12, 40, 40]),
        policy=st.sampled_from(["fcfs", "priority"]),
        threshold=st.sampled_from([None, 1, 3]),
        caching=st.booleans(),
        groups=st.sampled_from([1, 1, 2]),
        reserved=st.integers(0, 2),
    )
    def start(self, max_num_seqs: int, spare_budget: int, **options: object) -> None:
        self.harness = Harness(
            max_num_seqs=max_num_seqs,
            budget=max_num_seqs + spare_budget,
            **options,  # type: ignore[arg-type] # drawn by name above
        )

    @rule(
        prompt=st.tuples(
            st.sampled_from([0, 0, 5, 8, 13, 21]), st.lists(st.integers(0, 2), max_size=6)
        ),
        max_tokens=st.sampled_from([1, 2, 9, 20, 20, None]),
        stop=st.sampled_from([(), tuple(range(0, 50, 9))]),
        min_tokens=st.sampled_from([0, 0, 1]),
        priority=st.integers(0, 2),
        asks_logprobs=st.booleans(),
    )
    def add(
        self,
        prompt: tuple[int, list[int]],
        max_tokens: int | None,
        stop: tuple[int, ...],
        min_tokens: int,
        priority: int,
        asks_logprobs: bool,
    ) -> None:
        shared, own = prompt
        self._try_add(
            [*range(100, 100 + shared), *own],
            max_tokens=max_tokens,
            stop_token_ids=stop,
            min_tokens=min_tokens,
            priority=priority,
            logprobs=0 if asks_logprobs else None,
        )

    @precondition(lambda self: self.harness.scheduler.num_requests() < 12)
    @rule(num_requests=st.integers(2, 6), prompt_len=st.integers(1, 12))
    def burst(self, num_requests: int, prompt_len: int) -> None:
        for own in range(num_requests):
            self._try_add([*range(100, 99 + prompt_len), own], max_tokens=30)

    @precondition(lambda self: self.harness.scheduler.has_requests())
    @rule(data=st.data(), num_forks=st.integers(1, 3), max_tokens=st.sampled_from([1, 6, None]))
    def fork(self, data: st.DataObject, num_forks: int, max_tokens: int | None) -> None:
        parent = data.draw(st.sampled_from(self._live()))
        prompt = self.harness.requests[parent].prompt_token_ids
        priority = self.harness.requests[parent].priority
        for _ in range(num_forks):
            self._try_add(prompt, max_tokens=max_tokens, fork_of=parent, priority=priority)

    @precondition(lambda self: self.harness.scheduler.has_requests())
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.harness.abort(data.draw(st.sampled_from(self._live())))

    @precondition(lambda self: self.harness.scheduler.has_requests())
    @rule(num_steps=st.integers(1, 6))
    def step(self, num_steps: int) -> None:
        for _ in range(num_steps):
            if self.harness.scheduler.has_requests():
                assert self.harness.step() is not None

    @precondition(lambda self: self.harness.scheduler.has_requests())
    @rule(data=st.data(), comes_again=st.booleans())
    def abort_while_the_worker_computes(self, data: st.DataObject, comes_again: bool) -> None:
        request_id = data.draw(st.sampled_from(self._live()))
        request = self.harness.requests[request_id]

        def meanwhile() -> None:
            self.harness.abort(request_id)
            if comes_again:
                self.harness.add(request)

        self.harness.step(meanwhile)

    @invariant()
    def every_block_is_accounted_for(self) -> None:
        self.harness.check()

    def teardown(self) -> None:
        self.harness.run()

    def _live(self) -> list[str]:
        return list(self.harness.scheduler.block_tables())

    def _try_add(self, prompt: object, **options: object) -> None:
        self.num_added += 1
        with contextlib.suppress(RequestError):
            self.harness.add(make_request(f"r{self.num_added}", prompt, **options))  # type: ignore[arg-type] # drawn by name above


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = PROFILE
