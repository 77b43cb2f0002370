"""Log-probabilities of a step as messages; everything here is on the host."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from dougong.messages.step import TokenLogprobs
from dougong.sampling import TopLogprobs
from dougong.worker.prompt_rows import PromptTokens


def sampled_logprobs(
    token_ids: Sequence[int], found: TopLogprobs, asked: Sequence[int | None]
) -> list[TokenLogprobs | None]:
    """One entry per sampled row.

    Args:
        token_ids: That were chosen.
        found: Of the same rows, with as many most likely tokens as any row asked for.
        asked: How many each row asked for; ``None``: it asked for nothing.
    """
    columns = zip(
        token_ids,
        asked,
        found.logprob.tolist(),
        found.top_ids.tolist(),
        found.top_logprobs.tolist(),
        strict=True,
    )
    return [
        None if count is None else _entry(token_id, logprob, ids[:count], values[:count])
        for token_id, count, logprob, ids, values in columns
    ]


def prompt_logprobs(prompts: PromptTokens, found: TopLogprobs) -> list[list[TokenLogprobs]]:
    """Entries of the prompts' tokens, per row of ``prompts``."""
    columns = zip(
        prompts.token_ids.tolist(),
        found.logprob.tolist(),
        found.top_ids.tolist(),
        found.top_logprobs.tolist(),
        strict=True,
    )
    return [
        [
            _entry(token_id, logprob, ids[:wanted], values[:wanted])
            for token_id, logprob, ids, values in islice(columns, count)
        ]
        for count, wanted in zip(
            prompts.counts.tolist(), prompts.num_logprobs.tolist(), strict=True
        )
    ]


def _entry(
    token_id: int, logprob: float, top_ids: list[int], top_logprobs: list[float]
) -> TokenLogprobs:
    return TokenLogprobs(token_id, logprob, tuple(zip(top_ids, top_logprobs, strict=True)))
