"""A step nobody asked for: to see a peak, to touch what the first request needs."""

from __future__ import annotations

from collections.abc import Sequence

from dougong.messages.pooling import PoolingParams
from dougong.messages.request import SamplingParams
from dougong.messages.step import CachedRequestData, NewRequestData, SchedulerOutput

GREEDY = SamplingParams(temperature=0.0)


def dummy_lengths(num_tokens: int, max_model_len: int, max_num_seqs: int) -> list[int]:
    """Prompt lengths of the fewest requests that hold ``num_tokens`` together.

    Fewer tokens where even ``max_num_seqs`` of the longest do not hold as many: no step can.
    """
    longest = max(1, max_model_len - 1)
    full, rest = divmod(min(num_tokens, longest * max_num_seqs), longest)
    return [longest] * full + ([rest] if rest else [])


def spread_lengths(num_tokens: int, max_model_len: int, max_num_seqs: int) -> list[int]:
    """Prompt lengths of as many requests as can share ``num_tokens``: a step with as many rows of
    logits as it can have.

    Fewer tokens where no step can hold as many.
    """
    longest = max(1, max_model_len - 1)
    num_tokens = min(num_tokens, longest * max_num_seqs)
    num_seqs = min(num_tokens, max_num_seqs)
    each, rest = divmod(num_tokens, num_seqs)
    return [each + (index < rest) for index in range(num_seqs)]


def num_dummy_blocks(lengths: Sequence[int], block_size: int) -> int:
    """Blocks per group that `dummy_step` with these arguments touches."""
    return sum(-(-length // block_size) for length in lengths)


def dummy_step(
    lengths: Sequence[int],
    block_size: int,
    *,
    num_groups: int,
    first_block: int,
    sampling_params: SamplingParams = GREEDY,
    lora_slot: int = -1,
    pooling_params: PoolingParams | None = None,
) -> SchedulerOutput:
    """A whole prefill of prompts of these lengths, from ``first_block`` on.

    Its blocks belong to nobody yet; whatever is written there is never read.
    """
    new = []
    for index, length in enumerate(lengths):
        num_blocks = -(-length // block_size)
        blocks = list(range(first_block, first_block + num_blocks))
        first_block += num_blocks
        new.append(
            NewRequestData(
                request_id=f"dummy-{index}",
                token_ids=[0] * length,
                num_prompt_tokens=length,
                sampling_params=sampling_params,
                stop_token_ids=frozenset(),
                block_ids=tuple(blocks for _ in range(num_groups)),
                num_computed_tokens=0,
                lora_slot=lora_slot,
                pooling_params=pooling_params,
            )
        )
    scheduled = {request.request_id: len(request.token_ids) for request in new}
    return SchedulerOutput(0, new, CachedRequestData(), scheduled, sum(scheduled.values()))
