"""Logits of every family's tiny random models against `transformers`, and planted mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch

from dougong import LLM
from dougong.models import CausalLM
from tests.support.family_models import (
    TOKEN_IDS,
    VARIANTS,
    FamilyPair,
    make_family_pair,
)
from tests.support.greedy import greedy_tokens
from tests.support.model_harness import attention_layers

TOLERANCE = 1e-4
CUTS = {"one go": [len(TOKEN_IDS)], "chunks": [7, 16, 33, 1, 20], "single tokens": [1]}
FAMILIES = ("Qwen2", "Qwen3", "Phi-3", "Granite", "Gemma 3")
NUM_GREEDY = 24


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], FamilyPair]:
    made: dict[str, FamilyPair] = {}

    def pair_of(variant: str) -> FamilyPair:
        if variant not in made:
            made[variant] = make_family_pair(tmp_path_factory.mktemp("model"), variant)
        return made[variant]

    return pair_of


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_transformers_at_every_position(
    pairs: Callable[[str], FamilyPair], variant: str
) -> None:
    pair = pairs(variant)
    ours, expected = pair.ours(), pair.expected()
    for cut, sizes in CUTS.items():
        found = ours.logits(TOKEN_IDS, sizes, name=cut)
        torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE, msg=_told(cut))


def _told(cut: str) -> Callable[[str], str]:
    return lambda message: f"{cut}: {message}"


@pytest.mark.parametrize("variant", FAMILIES)
def test_the_engine_generates_what_transformers_does(
    pairs: Callable[[str], FamilyPair], variant: str
) -> None:
    pair = pairs(variant)
    ids = torch.tensor([TOKEN_IDS[:21]])
    theirs = pair.theirs.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=NUM_GREEDY, do_sample=False,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    with LLM(str(pair.folder), platform="cpu", dtype="float32", max_model_len=64) as llm:
        found = greedy_tokens(llm, TOKEN_IDS[:21], NUM_GREEDY)
    assert list(found) == theirs[0, 21:].tolist()


def _layers(model: CausalLM) -> Iterator[Any]:
    return iter(model.get_submodule("layers").children())


def drop_biases(model: CausalLM) -> None:
    for layer in _layers(model):
        layer.attention.qkv.bias.zero_()


def drop_query_and_key_norms(model: CausalLM) -> None:
    for layer in _layers(model):
        layer.attention.norm_rope.q_norm = layer.attention.norm_rope.k_norm = None


def swap_query_and_key_norms(model: CausalLM) -> None:
    for layer in _layers(model):
        slot = layer.attention.norm_rope
        slot.q_norm, slot.k_norm = slot.k_norm, slot.q_norm


def see_everything(model: CausalLM) -> None:
    for layer in attention_layers(model):
        layer.sliding_window = None


def see_one_token_more(model: CausalLM) -> None:
    for layer in attention_layers(model):
        if layer.sliding_window is not None:
            layer.sliding_window += 1


def window_in_the_other_layers(model: CausalLM) -> None:
    for layer in attention_layers(model):
        layer.sliding_window = 20 if layer.sliding_window is None else None


def scale_by_the_head(model: CausalLM) -> None:
    for layer in attention_layers(model):
        layer.scale = layer.head_dim**-0.5


def swap_gate_and_up(model: CausalLM) -> None:
    for layer in _layers(model):
        gate, up = layer.mlp.gate_up.weight.chunk(2)
        layer.mlp.gate_up.weight.copy_(torch.cat((up, gate)))


def swap_cosines_and_sines(model: CausalLM) -> None:
    for layer in _layers(model):
        rotary = layer.attention.norm_rope.rotary
        rotary.cos_sin_cache = torch.cat(rotary.cos_sin_cache.chunk(2, -1)[::-1], -1)


def one_rotary_table(model: CausalLM) -> None:
    tables = [layer.attention.norm_rope.rotary for layer in _layers(model)]
    for rotary in tables:
        rotary.cos_sin_cache = tables[0].cos_sin_cache


def drop(attribute: str) -> Callable[[CausalLM], None]:
    """An op of the model or of its layers left out."""

    def plant(model: CausalLM) -> None:
        owners = [owner for owner in (model, *_layers(model)) if hasattr(owner, attribute)]
        assert owners
        for owner in owners:
            getattr(owner, attribute).bind("planted", lambda x: x)

    return plant


def drop_caps_on_scores(model: CausalLM) -> None:
    for layer in attention_layers(model):
        layer.soft_cap = None


def norms_without_the_one(model: CausalLM) -> None:
    for name, target in model.weight_targets().items():
        if name.endswith("layernorm.weight"):
            target.view.sub_(1)


MISTAKES: Mapping[str, tuple[str, Callable[[CausalLM], None]]] = {
    "Qwen2 without biases": ("Qwen2", drop_biases),
    "Qwen2 without its window": ("Qwen2, a window from layer 1 on", see_everything),
    "Qwen2 with the window in the other layers": ("Qwen2, layer types", window_in_the_other_layers),
    "Qwen3 without norms of q and k": ("Qwen3", drop_query_and_key_norms),
    "Qwen3 with q's norm on k": ("Qwen3", swap_query_and_key_norms),
    "Phi-3 with up before gate": ("Phi-3", swap_gate_and_up),
    "Phi-3 with a window too wide by one": ("Phi-3, a window", see_one_token_more),
    "Phi-3 rotated otherwise": ("Phi-3, long LongRoPE", swap_cosines_and_sines),
    "Granite without the embeddings' multiplier": ("Granite", drop("scale_embeddings")),
    "Granite without the multiplier of attention": ("Granite", drop("scale_attention")),
    "Granite without the multiplier of the MLP": ("Granite", drop("scale_mlp")),
    "Granite without the logits' scale": ("Granite", drop("scale_logits")),
    "Granite with Llama's attention scale": ("Granite", scale_by_the_head),
    "Gemma 3 without norms of q and k": ("Gemma 3", drop_query_and_key_norms),
    "Gemma 3 with norms that lack the 1": ("Gemma 3", norms_without_the_one),
    "Gemma 3 without the norm after attention": ("Gemma 3", drop("post_attention_norm")),
    "Gemma 3 without the norm after the MLP": ("Gemma 3", drop("post_mlp_norm")),
    "Gemma 3 with one rotary base": ("Gemma 3", one_rotary_table),
    "Gemma 3 without windows": ("Gemma 3", see_everything),
    "Gemma 3 with a window too wide by one": ("Gemma 3", see_one_token_more),
    "Gemma 3 with Llama's attention scale": ("Gemma 3", scale_by_the_head),
    "Gemma 3 without the embeddings' scale": ("Gemma 3", drop("scale_embeddings")),
    "Gemma 3 without the cap on logits": ("Gemma 3, final cap", drop("cap_logits")),
    "Gemma 3 without the cap on scores": ("Gemma 3, both caps", drop_caps_on_scores),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@torch.inference_mode()
def test_a_planted_mistake_shows(pairs: Callable[[str], FamilyPair], mistake: str) -> None:
    variant, plant = MISTAKES[mistake]
    pair = pairs(variant)
    found = pair.ours(plant).logits(TOKEN_IDS, CUTS["one go"])
    assert (found - pair.expected()).abs().max() > 20 * TOLERANCE
