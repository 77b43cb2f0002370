"""Greedy answers to token ids, for tests that compare what engines say."""

from __future__ import annotations

from collections.abc import Sequence

from dougong import LLM, SamplingParams

PROMPT = tuple((7 * position + 5) % 250 for position in range(21))
"""Tokens of any tiny checkpoint; more than one block of 16."""


def greedy_tokens(llm: LLM, prompt: Sequence[int] = PROMPT, max_tokens: int = 6) -> tuple[int, ...]:
    """What is generated for ``prompt``, without a stop at the end of the text."""
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    (output,) = llm.generate(prompt_token_ids=list(prompt), sampling_params=params)
    return tuple(output.outputs[0].token_ids)
