"""Logits of tiny random models against `transformers`, at every position, however they are cut."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from dougong.checkpoint import open_tensors, read_config, resolve_reference
from dougong.models import CausalLM, ModelRegistry, load_model
from tests.support.model_harness import ModelHarness
from tests.support.tiny_models import ROPE_KINDS, tiny_config, write_tiny_checkpoint

NUM_TOKENS = 100
TOKEN_IDS = [(7 * i * i + 3 * i + 11) % 266 for i in range(NUM_TOKENS)]
TOLERANCE = 1e-4
CUTS = {"one go": [NUM_TOKENS], "chunks": [7, 16, 33, 1, 20], "single tokens": [1]}
ORIGINAL_LENGTH = 64  # of the dynamic NTK models that run beyond it

MISTRAL: Mapping[str, Any] = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "grouped queries": {},
    "one KV head": {"num_key_value_heads": 1},
    "a KV head per head": {"num_key_value_heads": 4},
    "KV heads not stated": {"num_key_value_heads": None},
    "tied head": {"tie_word_embeddings": True},
    "tied head, one KV head": {"tie_word_embeddings": True, "num_key_value_heads": 1},
    "attention bias": {"attention_bias": True},
    "MLP bias": {"mlp_bias": True},
    "both biases, tied head": {
        "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
    },
    "wide heads": {"head_dim": 48},
    "narrow heads": {"head_dim": 8},
    "three heads": {"num_attention_heads": 3, "num_key_value_heads": 3, "hidden_size": 96},
    "gelu": {"hidden_act": "gelu"},
    "tanh gelu": {"hidden_act": "gelu_pytorch_tanh"},
    "window": {**MISTRAL, "sliding_window": 20},
    "window of one": {**MISTRAL, "sliding_window": 1},
    "Mistral without window": {**MISTRAL, "sliding_window": None, "head_dim": 32},
    "Mistral with tied head": {**MISTRAL, "sliding_window": 33, "tie_word_embeddings": True},
    "float16 weights": {"torch_dtype": "float16"},
    **{f"{kind} rope": {"rope_parameters": rope} for kind, rope in ROPE_KINDS.items()},
    "older spelling of llama3 rope": {
        "rope_parameters": None,
        "rope_theta": 777.0,
        "rope_scaling": {**ROPE_KINDS["llama3"], "rope_type": "llama3"},
    },
    "oldest spelling of linear rope": {
        "rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 3.0},
    },
    "yarn length beside the parameters": {
        "rope_parameters": {"rope_type": "yarn", "factor": 4.0},
        "original_max_position_embeddings": 32,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """The same weights here and there."""

    ours: ModelHarness
    theirs: Any

    @torch.inference_mode()
    def expected(self) -> torch.Tensor:
        """Their logits of all tokens, in one go."""
        logits: torch.Tensor = self.theirs(torch.tensor([TOKEN_IDS])).logits[0]
        return logits


def make_pair(folder: Path, config: Mapping[str, Any]) -> Pair:
    stored = torch.float16 if config.get("torch_dtype") == "float16" else torch.float32
    write_tiny_checkpoint(folder, config, num_shards=2, dtype=stored)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    files = resolve_reference(str(folder))
    hf_config = read_config(files)
    cls = ModelRegistry().resolve(hf_config["architectures"])
    model, _ = load_model(cls, hf_config, torch.float32, torch.device("cpu"), open_tensors(files))
    assert isinstance(model, CausalLM)
    return Pair(ModelHarness(model), theirs.eval())


def variant_config(name: str) -> dict[str, Any]:
    changes = dict(VARIANTS[name])
    config = tiny_config(**changes)
    if changes.get("architectures") == MISTRAL["architectures"]:
        config["sliding_window"] = changes["sliding_window"]  # null is kept: it has a meaning
    return config


@pytest.fixture(scope="module", params=VARIANTS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name: str = request.param
    return make_pair(tmp_path_factory.mktemp("model"), variant_config(name))


@pytest.mark.parametrize("cut", CUTS)
def test_logits_equal_transformers_at_every_position(pair: Pair, cut: str) -> None:
    ours = pair.ours.logits(TOKEN_IDS, CUTS[cut], name=cut)
    torch.testing.assert_close(ours, pair.expected(), rtol=0, atol=TOLERANCE)


def test_sequences_in_one_step_do_not_see_each_other(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, tiny_config())
    expected = pair.expected()
    pair.ours.step({"a": TOKEN_IDS[:30], "b": TOKEN_IDS[:7]})
    found = pair.ours.step({"b": TOKEN_IDS[7:8], "c": TOKEN_IDS[:50], "a": TOKEN_IDS[30:60]})
    torch.testing.assert_close(found["a"], expected[30:60], rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(found["b"], expected[7:8], rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(found["c"], expected[:50], rtol=0, atol=TOLERANCE)


@torch.inference_mode()
def decoded_by_transformers(model: Any, prompt_length: int) -> torch.Tensor:
    """Their logits when the tokens after a prompt come one at a time."""
    cache = transformers.DynamicCache(config=model.config)
    ends = [0, *range(prompt_length, NUM_TOKENS + 1)]
    parts = [
        model(torch.tensor([TOKEN_IDS[start:end]]), cache=cache, use_cache=True).logits[0]
        for start, end in itertools.pairwise(ends)
    ]
    return torch.cat(parts)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("prompt_length", [1, 40, ORIGINAL_LENGTH])
def test_dynamic_rope_equals_transformers_beyond_the_original_length(
    tmp_path: Path, prompt_length: int, cut: str
) -> None:
    config = tiny_config(
        rope_parameters=dict(ROPE_KINDS["dynamic"]), max_position_embeddings=ORIGINAL_LENGTH
    )
    pair = make_pair(tmp_path, config)
    expected = decoded_by_transformers(pair.theirs, prompt_length)
    ours = pair.ours.logits(TOKEN_IDS, CUTS[cut])
    torch.testing.assert_close(ours, expected, rtol=0, atol=TOLERANCE)


def test_greedy_tokens_equal_those_of_generate(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, tiny_config())
    ids = torch.tensor([TOKEN_IDS[:20]])
    theirs = pair.theirs.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    assert pair.ours.greedy(TOKEN_IDS[:20], 40) == theirs[0, 20:].tolist()
