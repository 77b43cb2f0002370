"""A worker whose model is a hash: its next token depends on all tokens before and nothing else.

It writes into a pretended KV cache what prefix each slot stands for, and reads it all back in every
step. So it sees a block taken too early, shared wrongly, overwritten, or a token left out, and it
checks that each message keeps to the protocol of `SchedulerOutput`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dougong.messages import (
    ModelRunnerOutput,
    NewRequestData,
    Request,
    SchedulerOutput,
    TokenLogprobs,
)

VOCABULARY = 50


def prefix_ids(token_ids: Iterable[int]) -> list[int]:
    """One number per position that stands for all tokens up to it."""
    ids, last = [], 17
    for token in token_ids:
        last = hash((last, token))
        ids.append(last)
    return ids


def next_token(token_ids: Sequence[int]) -> int:
    return prefix_ids(token_ids)[-1] % VOCABULARY


def expected_generation(request: Request, *, max_len: int) -> list[int]:
    """What the model generates when nothing else is there."""
    params = request.sampling_params
    tokens, generated = list(request.prompt_token_ids), list[int]()
    stops = set(params.stop_token_ids) | (set() if params.ignore_eos else request.eos_token_ids)
    limit = max_len if params.max_tokens is None else min(max_len, len(tokens) + params.max_tokens)
    while len(tokens) < limit:
        is_stop_allowed = len(generated) >= params.min_tokens
        tokens.append(next_token(tokens))
        generated.append(tokens[-1])
        if is_stop_allowed and tokens[-1] in stops:
            break
    return generated


@dataclass
class Resident:
    """What the worker keeps of one request."""

    tokens: list[int]
    blocks: tuple[list[int], ...]
    num_computed: int
    asks_logprobs: bool


@dataclass
class FakeWorker:
    block_size: int
    residents: dict[str, Resident] = field(default_factory=dict)
    slots: dict[tuple[int, int, int], int] = field(default_factory=dict)
    next_step_id: int = 0
    num_computed_tokens: int = 0
    chunks: dict[str, list[int]] = field(default_factory=dict)

    def execute(self, step: SchedulerOutput) -> ModelRunnerOutput:
        assert step.step_id == self.next_step_id
        self.next_step_id += 1
        self._drop(step)
        new_ids = [self._add(new) for new in step.scheduled_new_reqs]
        cached = step.scheduled_cached_reqs
        for request_id, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            self._extend(request_id, blocks)
        assert sorted([*new_ids, *cached.req_ids]) == sorted(step.num_scheduled_tokens)
        assert sum(step.num_scheduled_tokens.values()) == step.total_num_scheduled_tokens
        self._write(step)
        sampled = [request_id for request_id in step.num_scheduled_tokens if self._read(request_id)]
        tokens = [[next_token(self.residents[request_id].tokens)] for request_id in sampled]
        logprobs = {
            request_id: TokenLogprobs(token_id=token, logprob=-1.0)
            for request_id, [token] in zip(sampled, tokens, strict=True)
            if self.residents[request_id].asks_logprobs
        }
        for request_id, [token] in zip(sampled, tokens, strict=True):
            self.residents[request_id].tokens.append(token)
        return ModelRunnerOutput(step.step_id, sampled, tokens, logprobs)

    def _drop(self, step: SchedulerOutput) -> None:
        for request_id in [*step.finished_req_ids, *step.preempted_req_ids]:
            assert request_id in self.residents, f"{request_id} is dropped twice or unknown"
            del self.residents[request_id]

    def _add(self, new: NewRequestData) -> str:
        assert new.request_id not in self.residents, f"{new.request_id} is new twice"
        assert 0 <= new.num_computed_tokens < len(new.token_ids)
        assert 0 < new.num_prompt_tokens <= len(new.token_ids)
        blocks = tuple(list(group) for group in new.block_ids)
        asks_logprobs = new.sampling_params.logprobs is not None
        resident = Resident(list(new.token_ids), blocks, new.num_computed_tokens, asks_logprobs)
        self.residents[new.request_id] = resident
        self._check_content(new.request_id)  # before this step writes anything
        return new.request_id

    def _extend(self, request_id: str, new_blocks: tuple[list[int], ...] | None) -> None:
        resident = self.residents[request_id]
        if new_blocks is not None:
            for group, more in zip(resident.blocks, new_blocks, strict=True):
                group += more

    def _write(self, step: SchedulerOutput) -> None:
        written = set[tuple[int, int, int]]()
        for request_id, num_tokens in step.num_scheduled_tokens.items():
            resident = self.residents[request_id]
            assert num_tokens >= 1
            end = resident.num_computed + num_tokens
            assert end <= len(resident.tokens), f"{request_id} has no token {end} to compute"
            ids = prefix_ids(resident.tokens)
            for position in range(resident.num_computed, end):
                for slot in self._slots_of(resident, position):
                    assert slot not in written, f"two tokens are written to {slot}"
                    written.add(slot)
                    self.slots[slot] = ids[position]
            resident.num_computed = end
            self.num_computed_tokens += num_tokens
            self.chunks.setdefault(request_id, []).append(num_tokens)

    def _read(self, request_id: str) -> bool:
        """Check every slot that attention would read; true when the request is to be sampled."""
        self._check_content(request_id)
        resident = self.residents[request_id]
        return resident.num_computed == len(resident.tokens)

    def _check_content(self, request_id: str) -> None:
        resident = self.residents[request_id]
        for position, prefix in enumerate(prefix_ids(resident.tokens[: resident.num_computed])):
            for slot in self._slots_of(resident, position):
                held = self.slots.get(slot)
                assert held == prefix, f"{request_id} reads another's content at token {position}"

    def _slots_of(self, resident: Resident, position: int) -> list[tuple[int, int, int]]:
        block, offset = divmod(position, self.block_size)
        return [(group, blocks[block], offset) for group, blocks in enumerate(resident.blocks)]
