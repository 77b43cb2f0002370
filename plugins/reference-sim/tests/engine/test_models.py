"""Every kind of model and cache that the core has, against the CPU platform."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dougong import LLM, SamplingParams

from dougong_sim.device import control
from tests.engine.checkpoints import prompt_of, write_checkpoint
from tests.engine.conftest import OPTIONS, open_on_host

PROMPTS = [prompt_of(37), prompt_of(6, start=9)]
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "biases": ({"attention_bias": True, "mlp_bias": True}, {}),
    "tied head, gelu": ({"tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh"}, {}),
    "one KV head": ({"num_key_value_heads": 1, "head_dim": 32}, {}),
    "window": (
        {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 10},
        {},
    ),
    "narrow cache": ({}, {"kv_cache_dtype": "bfloat16"}),
    "by another name": ({"architectures": ["SimLlamaForCausalLM"]}, {}),
}


def answers(llm: LLM) -> list[list[int]]:
    with llm, control.forbid_implicit_sync():
        outputs = llm.generate(prompt_token_ids=PROMPTS, sampling_params=GREEDY)
    return [list(output.outputs[0].token_ids) for output in outputs]


def on_device(model: str, **options: Any) -> LLM:
    return LLM(model, platform="sim", num_kv_blocks=24, **OPTIONS | options)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_equal_those_of_the_host(kind: str, tmp_path: Path) -> None:
    changes, options = KINDS[kind]
    model = write_checkpoint(tmp_path, **changes)
    found = answers(on_device(model, enforce_eager=True, **options))
    if kind == "by another name":  # that only this platform knows
        model = write_checkpoint(tmp_path / "plain")
    assert found == answers(open_on_host(model, num_kv_blocks=48, **OPTIONS | options))


def test_the_reference_attention_gives_the_same(tiny: str, host: LLM) -> None:
    outputs = host.generate(prompt_token_ids=PROMPTS, sampling_params=GREEDY)
    expected = [list(output.outputs[0].token_ids) for output in outputs]
    assert answers(on_device(tiny, attention_backend="reference/torch")) == expected


def test_half_precision_runs(tiny: str) -> None:
    for found in answers(on_device(tiny, dtype="bfloat16", enforce_eager=True)):
        assert len(found) == GREEDY.max_tokens
