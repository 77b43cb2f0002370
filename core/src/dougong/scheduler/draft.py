"""One step while it is being decided, and while the worker computes it."""

from __future__ import annotations

from dougong.messages import CachedRequestData, NewRequestData, SchedulerOutput
from dougong.scheduler.state import Phase, SequenceState


class StepDraft:
    """Collects one step's work.

    Attributes:
        step_id: Of the `SchedulerOutput` to come.
        num_left: Tokens left of the step's budget.
        prefills: Requests that compute part or all of their known tokens, with how many.
        num_due: Requests that will be sampled.
        may_admit: Whether waiting requests may enter in this step.
    """

    __slots__ = (
        "_counts",
        "_grown",
        "_new",
        "_new_counts",
        "may_admit",
        "num_due",
        "num_left",
        "prefills",
        "step_id",
    )

    def __init__(
        self,
        step_id: int,
        *,
        decode_counts: dict[str, int],
        grown: dict[str, tuple[list[int], ...]],
        max_num_tokens: int,
        may_admit: bool,
    ) -> None:
        self.step_id = step_id
        self.num_left = max_num_tokens - len(decode_counts)
        self.may_admit = may_admit
        self.num_due = len(decode_counts)
        self.prefills: list[tuple[SequenceState, int]] = []
        self._counts = decode_counts
        self._grown = grown
        self._new: list[NewRequestData] = []
        self._new_counts: dict[str, int] = {}

    def is_due(self, state: SequenceState) -> bool:
        """Whether the worker will sample ``state``; asked while the step runs."""
        if state.phase is Phase.DECODING:
            return True
        return any(
            member is state and state.num_computed_tokens + num_tokens == len(state.token_ids)
            for member, num_tokens in self.prefills
        )

    def add_chunk(self, state: SequenceState, num_tokens: int) -> None:
        """Compute the next ``num_tokens`` known tokens of ``state``, which the worker holds."""
        self._counts[state.request_id] = num_tokens
        self._note(state, num_tokens)

    def add_new(self, state: SequenceState, num_tokens: int) -> None:
        """Tell the worker all about ``state`` and compute its first ``num_tokens`` tokens."""
        self._new_counts[state.request_id] = num_tokens
        state.prompt_logprobs = []  # a preemption may have come between
        self._note(state, num_tokens)
        prompt = state.request.prompt_token_ids
        self._new.append(
            NewRequestData(
                request_id=state.request_id,
                token_ids=prompt if state.num_generated_tokens == 0 else list(state.token_ids),
                num_prompt_tokens=state.num_prompt_tokens,
                sampling_params=state.request.sampling_params,
                stop_token_ids=state.stop_token_ids,
                block_ids=tuple(list(group) for group in state.table.block_ids),
                num_computed_tokens=state.num_computed_tokens,
                lora_slot=-1 if state.request.lora is None else state.request.lora.slot,
                pooling_params=state.request.pooling_params,
            )
        )

    def finish(self, *, finished: list[str], preempted: list[str]) -> SchedulerOutput | None:
        """The message, which shares nothing that changes; ``None`` when nothing is computed."""
        counts = self._counts
        cached_ids = list(counts)
        new_block_ids: list[tuple[list[int], ...] | None]
        if self._grown:
            new_block_ids = list(map(self._grown.get, cached_ids))
        else:
            new_block_ids = [None] * len(cached_ids)
        num_decodes = len(cached_ids) + len(self._new) - len(self.prefills)
        counts.update(self._new_counts)
        if not counts:
            return None
        return SchedulerOutput(
            step_id=self.step_id,
            scheduled_new_reqs=self._new,
            scheduled_cached_reqs=CachedRequestData(cached_ids, new_block_ids),
            num_scheduled_tokens=counts,
            total_num_scheduled_tokens=num_decodes + sum(count for _, count in self.prefills),
            finished_req_ids=finished,
            preempted_req_ids=preempted,
        )

    def _note(self, state: SequenceState, num_tokens: int) -> None:
        self.num_left -= num_tokens
        self.prefills.append((state, num_tokens))
        if state.num_computed_tokens + num_tokens == len(state.token_ids):
            self.num_due += 1
