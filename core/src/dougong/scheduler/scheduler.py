"""Continuous batching: which request computes how many tokens in the next step."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from dougong.config.cache import CacheConfig
from dougong.config.scheduler import SchedulerConfig
from dougong.errors import PluginError, RequestError
from dougong.kv_cache import BlockAllocator, BlockTable
from dougong.messages import (
    FinishReason,
    LoRARef,
    ModelRunnerOutput,
    Request,
    RequestDelta,
    SchedulerOutput,
    TokenLogprobs,
)
from dougong.scheduler.admission import RequestLimits
from dougong.scheduler.block_owner import block_owner
from dougong.scheduler.budget import chunk_size
from dougong.scheduler.draft import StepDraft
from dougong.scheduler.forks import parent_of, release, try_hold
from dougong.scheduler.preemption import make_way
from dougong.scheduler.queue import RequestQueue, first_to_run
from dougong.scheduler.running import RunningRequests
from dougong.scheduler.state import Phase, SequenceState
from dougong.scheduler.stats import SchedulerStats
from dougong.scheduler.stop import finish_reason


class Scheduler:
    """Decides each step; knows no device, no text and no clock.

    One step at a time: `schedule`, then `update` with the worker's answer. Requests may be added
    and aborted at any moment, between the two as well.

    In a step, every decoding request computes its one token; then prompts already begun go on, in
    running order; then waiting requests are admitted, strictly in order, while tokens, seats and
    blocks last. Where a decoding request finds no block, the request that is last in running order
    is preempted: it gives up its blocks, waits at its old place, and later computes all its tokens
    again. The first in running order is never preempted for another, and alone it always fits, so
    every step brings the end of some request nearer.
    """

    def __init__(self, config: SchedulerConfig, cache: CacheConfig) -> None:
        self.config = config
        self.limits = RequestLimits.of(config, cache)
        self.allocator = BlockAllocator(cache)
        self._requests: dict[str, SequenceState] = {}
        self._waiting = RequestQueue(first_to_run)
        self._running = RunningRequests(self.allocator)
        self._arrivals = count()
        self._next_step_id = 0
        self._in_flight: StepDraft | None = None
        self._num_due_lost = 0
        self._finished_ids: list[str] = []
        self._preempted_ids: list[str] = []
        self._num_preemptions = 0

    def add(self, request: Request) -> None:
        """Let ``request`` wait for its turn.

        Raises:
            RequestError: It can never be served, or its id is in use.
        """
        self.limits.check_request(request)
        if request.request_id in self._requests:
            raise RequestError(
                f"request_id={request.request_id!r} is in use by a request that has not ended. "
                "Use another id.",
                field="request_id",
            )
        parent = parent_of(request, self._requests)
        rank = request.priority if self.config.policy == "priority" else 0
        state = SequenceState(
            request,
            order=(rank, next(self._arrivals)),
            table=self.allocator.new_table(block_owner(request.lora)),
            max_len=self.limits.max_len_of(request),
        )
        self._requests[request.request_id] = state
        if parent is None or not try_hold(state, parent):
            self._waiting.push(state)

    def abort(self, request_ids: Iterable[str]) -> list[str]:
        """End requests wherever they stand; their blocks are free when this returns.

        Returns:
            The ids that were live. No `RequestDelta` follows for them.
        """
        aborted = []
        for request_id in request_ids:
            state = self._requests.get(request_id)
            if state is not None:
                if self._in_flight is not None and self._in_flight.is_due(state):
                    self._num_due_lost += 1
                self._retire(state)
                aborted.append(request_id)
        return aborted

    def schedule(self) -> SchedulerOutput | None:
        """The next step, or ``None`` when there is nothing to compute.

        What ended or was preempted is told with the next step that computes something.
        """
        assert self._in_flight is None, "update() comes before the next schedule()"
        grown = self._running.grow(self._preempt)
        # What was just taken from one request must not go to a new one.
        may_admit = not self._preempted_ids
        if may_admit and (head := self._waiting.peek()) is not None:
            make_way(head, self._running, config=self.config, preempt=self._preempt)
        draft = StepDraft(
            self._next_step_id,
            decode_counts=self._running.decode_counts.copy(),
            grown=grown,
            max_num_tokens=self.config.max_num_batched_tokens,
            may_admit=may_admit,
        )
        self._fill(draft)
        output = draft.finish(finished=self._finished_ids, preempted=self._preempted_ids)
        assert output is not None or not self._preempted_ids, "one gave way to another that runs"
        if output is not None:
            self._in_flight = draft
            self._num_due_lost = 0
            self._next_step_id += 1
            self._finished_ids = []
            self._preempted_ids = []
        return output

    def due_among(self, request_ids: Iterable[str]) -> list[str]:
        """Which of these requests the step in flight samples, in their order."""
        draft, requests = self._in_flight, self._requests
        if draft is None:
            return []
        live = (requests.get(request_id) for request_id in request_ids)
        return [one.request_id for one in live if one is not None and draft.is_due(one)]

    def update(self, output: ModelRunnerOutput) -> list[RequestDelta]:
        """Take in what the step in flight produced.

        Returns:
            One delta per sampled request, in the worker's order.

        Raises:
            PluginError: The answer is not to the step in flight, or samples other requests than
                those whose last known token was computed.
        """
        draft = self._in_flight
        if draft is None or output.step_id != draft.step_id:
            expected = "none" if draft is None else draft.step_id
            raise PluginError(
                f"The worker answered step {output.step_id}, and the step in flight is {expected}. "
                "Answer every step once, in order."
            )
        num_answered = len(output.req_ids) + len(output.pooled)
        self._check_num_sampled(num_answered, draft.num_due, output)
        self._in_flight = None
        self._finish_prefills(draft)
        requests, logprobs = self._requests, output.logprobs
        for request_id, entries in output.prompt_logprobs.items():
            if request_id in requests:
                requests[request_id].prompt_logprobs += entries
        deltas: list[RequestDelta] = []
        for request_id, new_token_ids in zip(output.req_ids, output.sampled_token_ids, strict=True):
            state = requests.get(request_id)
            if state is None:
                continue  # aborted while the step ran
            token_ids, token_id = state.token_ids, new_token_ids[0]
            if len(token_ids) < state.quiet_until and token_id not in state.stop_token_ids:
                token_ids.append(token_id)
                deltas.append(RequestDelta(request_id, new_token_ids))
            elif state.phase is Phase.DECODING:
                deltas.append(self._advance(state, new_token_ids, logprobs.get(request_id)))
        for request_id, pooled in output.pooled.items():
            state = requests.get(request_id)
            if state is not None and state.takes_vector:
                deltas.append(self._end_with(state, pooled))
        self._check_num_sampled(len(deltas), draft.num_due - self._num_due_lost, output)
        return deltas

    def has_requests(self) -> bool:
        """Whether any request has not ended."""
        return bool(self._requests)

    def num_requests(self) -> int:
        """Requests that have not ended."""
        return len(self._requests)

    def num_using(self, lora: LoRARef) -> int:
        """Requests that have not ended and use this adapter."""
        return sum(state.request.lora == lora for state in self._requests.values())

    def stats(self) -> SchedulerStats:
        """The scheduler now."""
        return SchedulerStats(
            num_running=len(self._running),
            num_waiting=len(self._requests) - len(self._running),
            num_preemptions=self._num_preemptions,
            kv_cache=self.allocator.usage(),
        )

    def block_tables(self) -> dict[str, BlockTable]:
        """The block table of every live request, empty for those that wait; for audits."""
        return {request_id: state.table for request_id, state in self._requests.items()}

    @staticmethod
    def _check_num_sampled(num_sampled: int, num_due: int, output: ModelRunnerOutput) -> None:
        if num_sampled != num_due:
            raise PluginError(
                f"The worker sampled {num_sampled} of the requests that run in step "
                f"{output.step_id}, and {num_due} were due. Sample those whose last known token is "
                "computed, no others and each once."
            )

    def _fill(self, draft: StepDraft) -> None:
        for state in tuple(self._running.prefilling):
            while self._try_admit_next(draft, ahead_of=state):
                pass
            size = self._chunk_size(state, draft)
            if size:
                draft.add_chunk(state, size)
        while self._try_admit_next(draft):
            pass

    def _try_admit_next(self, draft: StepDraft, *, ahead_of: SequenceState | None = None) -> bool:
        """Admit the head of the queue: never another one, or a long request might wait forever."""
        head = self._waiting.peek()
        if head is None or (ahead_of is not None and not head.outranks(ahead_of)):
            return False
        has_seat = len(self._running) < self.config.max_num_seqs
        if not (has_seat and draft.may_admit and draft.num_left):
            return False
        if self.config.has_whole_prompts and len(head.token_ids) > draft.num_left:
            return False
        if head.preempted_in == draft.step_id or not self._running.try_enter(head):
            return False
        self._waiting.discard(head)
        self.allocator.count_lookup(len(head.token_ids), head.num_computed_tokens)
        if head.num_cached_tokens is None:
            head.num_cached_tokens = head.num_computed_tokens
        draft.add_new(head, self._chunk_size(head, draft))
        return True

    def _chunk_size(self, state: SequenceState, draft: StepDraft) -> int:
        return chunk_size(
            len(state.token_ids) - state.num_computed_tokens,
            num_left=draft.num_left,
            threshold=self.config.long_prefill_token_threshold,
        )

    def _finish_prefills(self, draft: StepDraft) -> None:
        for state, num_tokens in draft.prefills:
            if state.phase is not Phase.PREFILLING:
                continue  # aborted while the step ran
            state.num_computed_tokens += num_tokens
            self.allocator.index_computed(state.table, state.token_ids, state.num_computed_tokens)
            if state.num_computed_tokens == len(state.token_ids):
                self._running.start_decoding(state)

    def _advance(
        self, state: SequenceState, new_token_ids: list[int], logprobs: TokenLogprobs | None
    ) -> RequestDelta:
        """Add a token that may change more than the length."""
        state.token_ids += new_token_ids
        is_first = state.num_generated_tokens == len(new_token_ids)
        prompt_logprobs, state.prompt_logprobs = state.prompt_logprobs, []
        reason = finish_reason(state)
        if reason is not None:
            self._retire(state)
        else:
            self._running.settle(state)
            self._release_forks(state)
        return RequestDelta(
            state.request_id,
            new_token_ids,
            finish_reason=reason,
            stop_token_id=state.token_ids[-1] if reason is FinishReason.STOP else None,
            logprobs=[] if logprobs is None else [logprobs],
            num_cached_tokens=(state.num_cached_tokens or 0) if is_first else 0,
            prompt_logprobs=prompt_logprobs,
        )

    def _end_with(self, state: SequenceState, pooled: list[float]) -> RequestDelta:
        """The vector of a whole prompt, and nothing after it."""
        self._retire(state)
        return RequestDelta(
            state.request_id,
            [],
            finish_reason=FinishReason.STOP,
            num_cached_tokens=state.num_cached_tokens or 0,
            pooled=pooled,
        )

    def _retire(self, state: SequenceState) -> None:
        del self._requests[state.request_id]
        if state.is_running:
            self._running.leave(state)
            self._finished_ids.append(state.request_id)
        elif state.phase is Phase.WAITING:
            self._waiting.discard(state)
        state.phase = Phase.GONE
        self._release_forks(state)

    def _preempt(self, state: SequenceState) -> None:
        self._running.leave(state)
        state.phase = Phase.WAITING
        state.preempted_in = self._next_step_id
        self._waiting.push(state)
        self._preempted_ids.append(state.request_id)
        self._num_preemptions += 1

    def _release_forks(self, parent: SequenceState) -> None:
        for fork in release(parent):
            self._waiting.push(fork)
