"""Real Gemma 3 weights in float32 against the tokens `transformers` found.

`tests.support.make_greedy_fixture` made those.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dougong import LLM, SamplingParams
from dougong.checkpoint import open_tensors, read_config, resolve_reference
from dougong.models import CausalLM, ModelRegistry, load_model
from tests.support.gemma3_weights import gemma3_file
from tests.support.make_greedy_fixture import GEMMA3_FIXTURE
from tests.support.model_harness import ModelHarness, attention_layers

pytestmark = [pytest.mark.extra, pytest.mark.timeout(600)]

GREEDY = json.loads(GEMMA3_FIXTURE.read_text("utf-8"))
LENGTHS = [len(case["prompt_token_ids"]) for case in GREEDY["cases"]]
WINDOW = 512
MARGIN_TOLERANCE = 2e-3


@pytest.fixture(scope="module")
def weights() -> Path:
    return gemma3_file()


@pytest.fixture(scope="module")
def harness(weights: Path) -> ModelHarness:
    files = resolve_reference(str(weights))
    config = read_config(files)
    cls = ModelRegistry().resolve(config["architectures"])
    cpu = torch.device("cpu")
    model, _ = load_model(cls, config, torch.float32, cpu, open_tensors(files), max_model_len=1024)
    assert isinstance(model, CausalLM)
    return ModelHarness(model)


def test_the_expected_tokens_are_of_this_file(weights: Path) -> None:
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert digest == GREEDY["made_with"]["sha256"]


def test_ten_prompts_are_compared_some_longer_than_the_window() -> None:
    assert len(LENGTHS) == 10
    assert sum(length > WINDOW for length in LENGTHS) == 2


def test_every_sixth_layer_sees_everything(harness: ModelHarness) -> None:
    windows = [layer.sliding_window for layer in attention_layers(harness.model)]
    assert windows == [*[WINDOW] * 5, None] * 3


@pytest.mark.parametrize("case", GREEDY["cases"], ids=LENGTHS)
def test_greedy_tokens_equal_those_of_transformers(
    harness: ModelHarness, case: dict[str, Any]
) -> None:
    """Each expected token is the most likely one after those before it, by the same margin."""
    prompt, expected = case["prompt_token_ids"], case["output_token_ids"]
    logits = harness.step({"a": prompt + expected[:-1]}, num_logits=len(expected))["a"]
    harness.free("a")
    best = logits.topk(2)
    assert best.indices[:, 0].tolist() == expected
    margins = best.values[:, 0] - best.values[:, 1]
    wanted = torch.tensor(case["margins"])
    torch.testing.assert_close(margins, wanted, rtol=0, atol=MARGIN_TOLERANCE)


def test_the_engine_gives_the_tokens_of_transformers_for_ten_prompts_at_once(
    weights: Path,
) -> None:
    cases = GREEDY["cases"]
    params = SamplingParams(max_tokens=GREEDY["num_new_tokens"], temperature=0.0, ignore_eos=True)
    with LLM(
        str(weights), platform="cpu", dtype="float32", max_num_seqs=10,
        max_num_batched_tokens=256, max_model_len=1024,
    ) as llm:  # fmt: skip
        outputs = llm.generate([case["prompt_token_ids"] for case in cases], params)
    found = [list(output.outputs[0].token_ids) for output in outputs]
    assert found == [case["output_token_ids"] for case in cases]
