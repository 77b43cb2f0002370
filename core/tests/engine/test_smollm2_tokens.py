"""The demo model's greedy tokens against those `transformers` found; see `make_greedy_fixture`."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
import torch

from dougong.checkpoint import CheckpointFiles, open_tensors, read_config, resolve_reference
from dougong.models import CausalLM, ModelRegistry, load_model
from tests.support.make_greedy_fixture import FIXTURE
from tests.support.model_harness import ModelHarness

GREEDY = json.loads(FIXTURE.read_text("utf-8"))
LENGTHS = [len(case["prompt_token_ids"]) for case in GREEDY["cases"]]
MARGIN_TOLERANCE = 2e-3


@pytest.fixture(scope="module")
def demo() -> CheckpointFiles:
    return resolve_reference("demo")


@pytest.fixture(scope="module")
def harness(demo: CheckpointFiles) -> ModelHarness:
    config = read_config(demo)
    cls = ModelRegistry().resolve(config["architectures"])
    cpu = torch.device("cpu")
    model, _ = load_model(cls, config, torch.float32, cpu, open_tensors(demo), max_model_len=1024)
    assert isinstance(model, CausalLM)
    return ModelHarness(model)


def test_the_expected_tokens_are_of_this_file(demo: CheckpointFiles) -> None:
    digest = hashlib.sha256(demo.weights[0].read_bytes()).hexdigest()
    assert digest == GREEDY["made_with"]["sha256"]


def test_ten_prompts_of_5_to_600_tokens_are_compared() -> None:
    assert len(LENGTHS) == 10
    assert (min(LENGTHS), max(LENGTHS)) == (5, 600)


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
