"""The whole engine on the demo model in float32: the greedy tokens that `transformers` found."""

from __future__ import annotations

import json

from dougong import LLM, SamplingParams
from tests.support.make_greedy_fixture import FIXTURE

CASES = json.loads(FIXTURE.read_text("utf-8"))["cases"]
NEAR_TIE = 2e-3  # a margin below it may fall either way in another order of float32 sums


def test_ten_prompts_in_one_batch_give_the_tokens_of_transformers() -> None:
    num_tokens = len(CASES[0]["output_token_ids"])
    params = SamplingParams(max_tokens=num_tokens, temperature=0.0, ignore_eos=True)
    prompts = [case["prompt_token_ids"] for case in CASES]
    with LLM(
        "demo", platform="cpu", dtype="float32", max_num_seqs=10, max_num_batched_tokens=256,
        max_model_len=1024,
    ) as llm:  # fmt: skip
        outputs = llm.generate(prompts, params)
    for output, case in zip(outputs, CASES, strict=True):
        found, expected = output.outputs[0].token_ids, case["output_token_ids"]
        first = next((i for i in range(num_tokens) if found[i] != expected[i]), None)
        assert first is None or case["margins"][first] < NEAR_TIE
