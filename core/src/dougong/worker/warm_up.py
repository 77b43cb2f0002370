"""Which steps a warm-up runs, so that everything the plan names is used once before a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from dougong.contracts import RankPlan
from dougong.contracts.rank_plan import NATIVE
from dougong.messages.request import SamplingParams
from dougong.ops.assignments import SAMPLER_PREFIX
from dougong.worker.dummy_step import GREEDY, dummy_lengths, num_dummy_blocks, spread_lengths
from dougong.worker.reaching import reaching_counts

# Greedy choice is computed for every row; this asks for the other parts of the sampler too.
_EVERYTHING = SamplingParams(
    temperature=1.0, top_k=1, top_p=0.5, seed=0, logprobs=1, repetition_penalty=1.5
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """What a step can hold.

    Attributes:
        max_num_tokens: Tokens.
        max_num_seqs: Sequences.
        max_model_len: Tokens of one sequence, output included.
        num_blocks: KV blocks of each group.
        block_size: Tokens per block.
    """

    max_num_tokens: int
    max_num_seqs: int
    max_model_len: int
    num_blocks: int
    block_size: int

    def can_hold(self, lengths: list[int]) -> bool:
        """Whether one step can compute prompts of these lengths."""
        return (
            sum(lengths) <= self.max_num_tokens
            and len(lengths) <= self.max_num_seqs
            and max(lengths) < max(2, self.max_model_len)
            and num_dummy_blocks(lengths, self.block_size) <= self.num_blocks
        )

    def step_of(self, num_tokens: int) -> Iterator[list[int]]:
        """Prompt lengths that hold ``num_tokens``, in as many sequences as the cache has room for;
        nothing where no step has as many."""
        for choose in (spread_lengths, dummy_lengths):
            lengths = choose(num_tokens, self.max_model_len, self.max_num_seqs)
            if sum(lengths) == num_tokens and self.can_hold(lengths):
                yield lengths
                return


def warm_up_steps(
    plan: RankPlan, limits: StepLimits, was_called: Callable[[str, int], bool]
) -> Iterator[list[int]]:
    """Prompt lengths of each step.

    At first a prefill beside a decode, since attention computes the two apart; as two steps where
    an implementation is for one or two tokens alone. Then the first token count of every other
    piece that is not native. Then more where that has not called one, as inside a fused slot whose
    kernel is for few tokens. What no step can reach is left out.

    Args:
        plan: What is bound.
        limits: What a step can hold.
        was_called: Whether the steps that were given so far called a piece: the path of its op, its
            place among the op's pieces. Asked after those steps ran.
    """
    bounds = [piece.up_to for one in plan.ops for piece in one.pieces if piece.up_to is not None]
    tried = set()
    for lengths in _first_steps(limits, must_be_apart=any(bound < 3 for bound in bounds)):
        tried.add(sum(lengths))
        yield lengths
    counts = {
        piece.up_to + 1
        for one in plan.ops
        for piece, later in pairwise(one.pieces)
        if later.implementation != NATIVE and piece.up_to is not None
    }
    for count in sorted(counts):
        tried.add(count)
        yield from limits.step_of(count)
    yield from _steps_for_the_rest(plan, limits, was_called, tried)


def _steps_for_the_rest(
    plan: RankPlan,
    limits: StepLimits,
    was_called: Callable[[str, int], bool],
    tried: set[int],
) -> Iterator[list[int]]:
    """Steps for pieces that were not called, with token counts that were not tried."""
    for path, index, counts in reaching_counts(plan):
        for count in counts:
            if was_called(path, index):
                break
            if count in tried:
                continue
            tried.add(count)
            yield from limits.step_of(count)


def _first_steps(limits: StepLimits, *, must_be_apart: bool) -> Iterator[list[int]]:
    if limits.can_hold([2, 1]) and not must_be_apart:
        yield [2, 1]
        return
    yield [1]
    if limits.can_hold([2]):
        yield [2]


def warm_up_sampling(plan: RankPlan) -> SamplingParams:
    """What each request of a warm-up asks of the sampler: all of it where part of it is not native,
    since its penalties, cuts and log-probabilities take time."""
    for one in plan.ops:
        is_sampler = any(path.startswith(SAMPLER_PREFIX) for path in one.paths)
        is_native = all(piece.implementation == NATIVE for piece in one.pieces)
        if is_sampler and not is_native and one.key != "greedy_sample":
            return _EVERYTHING
    return GREEDY
