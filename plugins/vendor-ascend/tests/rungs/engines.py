"""Engines on doubles and on the host, and what they answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from dougong import LLM, SamplingParams
from dougong_conformance.ladder.installed_double import installed_double
from dougong_conformance.ladder.platform_double import Double

from tests.rungs.checkpoints import prompt_of

OPTIONS: dict[str, Any] = {"max_model_len": 200, "max_num_seqs": 4, "max_num_batched_tokens": 64}
TIGHT = 9
"""KV blocks, four of them for rows of padding: too few for all prompts at once."""

PROMPTS = [prompt_of(length, start) for length, start in ((125, 1), (122, 2), (120, 3), (126, 4))]
GREEDY = SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True)
DRAWN = [
    SamplingParams(max_tokens=8, temperature=0.9, seed=1, ignore_eos=True),
    SamplingParams(max_tokens=8, temperature=1.3, top_k=20, seed=2),
    SamplingParams(max_tokens=8, temperature=0.7, top_p=0.8, seed=3),
    SamplingParams(max_tokens=8, temperature=0.0, min_tokens=6, stop_token_ids=[9, 17]),
]


@contextmanager
def engine_on(double: Double, model: str, **options: Any) -> Iterator[LLM]:
    """An engine whose platform is the double, found by its name."""
    with (
        installed_double(double) as name,
        LLM(model, platform=name, **{**OPTIONS, **options}) as llm,
    ):
        yield llm


def tokens(
    llm: LLM, params: SamplingParams | list[SamplingParams], prompts: Sequence[list[int]] = PROMPTS
) -> list[list[int]]:
    """Of each prompt's first answer."""
    outputs = llm.generate(prompt_token_ids=list(prompts), sampling_params=params)
    return [list(output.outputs[0].token_ids) for output in outputs]


def on_host(
    model: str, dtype: str, params: SamplingParams | list[SamplingParams]
) -> list[list[int]]:
    """What the CPU platform says of the same prompts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOUGONG_PLUGINS", "cpu")
        with LLM(model, platform="cpu", dtype=dtype, num_kv_blocks=64, **OPTIONS) as llm:
            return tokens(llm, params)
