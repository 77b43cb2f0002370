"""4 and 8 bits stay 4 and 8 bits: memory, tokens and reasons, from tiny GGUF files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType

from dougong import LLM, SamplingParams
from dougong.config import EngineArgs
from dougong.cpu import kernels
from dougong.cpu.native import NotBuilt
from dougong.engine.planning import explain
from dougong.errors import ConfigError
from tests.support.tiny_gguf import write_tiny_gguf

KINDS = {
    "q4_0": GGMLQuantizationType.Q4_0,
    "q4_1": GGMLQuantizationType.Q4_1,
    "q8_0": GGMLQuantizationType.Q8_0,
}
PROMPTS = [[(7 * at + 13 * start + 5) % 250 for at in range(17 + 9 * start)] for start in range(3)]
ASKED = SamplingParams(max_tokens=16, temperature=0.0, ignore_eos=True, logprobs=0)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("models")
    return {
        name: str(write_tiny_gguf(folder / f"{name}.gguf", kind)) for name, kind in KINDS.items()
    }


def answers(llm: LLM) -> list[tuple[list[int], list[float]]]:
    outputs = llm.generate(prompt_token_ids=PROMPTS, sampling_params=ASKED)
    return [
        (one.outputs[0].token_ids, [at.logprob for at in one.outputs[0].logprobs or ()])
        for one in outputs
    ]


@pytest.mark.parametrize("name", KINDS)
def test_weights_stay_as_they_are_and_the_answer_is_that_of_plain_ones(
    models: Mapping[str, str], name: str
) -> None:
    with LLM(models[name], num_kv_blocks=40, dtype="float32", custom_ops="none") as llm:
        (plan,) = (one for one in llm.plan.weights if one.format.lower() == name)
        assert plan.where == "dequantized at load"
        plain_bytes, expected = llm.report.memory.weights, answers(llm)
    with LLM(models[name], num_kv_blocks=40, dtype="float32") as llm:
        (plan,) = (one for one in llm.plan.weights if one.format.lower() == name)
        assert (plan.where, plan.kept_share, plan.reason) == ("as stored", 1.0, "")
        assert not [one for one in llm.plan.fallbacks if "weights" in one.subject]
        kept_bytes, found = llm.report.memory.weights, answers(llm)
        ran = llm.report.implementations
    for (tokens, logprobs), (kept_tokens, kept_logprobs) in zip(expected, found, strict=True):
        assert kept_tokens == tokens
        assert kept_logprobs == pytest.approx(logprobs, abs=1e-4)
    assert kept_bytes < plain_bytes * (0.35 if name == "q8_0" else 0.25)
    assert ran["linear"] == {"cpu/block_linear": 6}
    assert ran["gate_up_act"] == {"cpu/block_gate_up_act": 2}
    assert ran["lm_head"] == {"cpu/block_lm_head": 1}
    assert ran["embedding"] == {"cpu/block_embedding": 1}


def test_a_wrong_scale_is_another_answer(
    models: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison above can fail."""
    with LLM(models["q4_1"], num_kv_blocks=40, dtype="float32", custom_ops="none") as llm:
        expected = answers(llm)
    make = kernels.BlockLinear.__init__

    def spoilt(self: kernels.BlockLinear, op: Any) -> None:
        if op.path == "layers.1.mlp.down":
            op.weight[:, 1] ^= 4  # of each row's first scale
        make(self, op)

    monkeypatch.setattr(kernels.BlockLinear, "__init__", spoilt)
    with LLM(models["q4_1"], num_kv_blocks=40, dtype="float32") as llm:
        assert answers(llm) != expected


def test_a_switch_that_names_one_op_leaves_the_others_stored(models: Mapping[str, str]) -> None:
    with LLM(models["q4_0"], num_kv_blocks=40, custom_ops="-lm_head") as llm:
        (plan,) = (one for one in llm.plan.weights if one.format.lower() == "q4_0")
        assert plan.where == "partly as stored"
        assert 0 < plan.kept_share < 1
        assert "--custom-ops -lm_head was asked for" in plan.reason
        (fallback,) = (one for one in llm.plan.fallbacks if "weights" in one.subject)
        assert fallback.reason == plan.reason
        assert llm.report.implementations["linear"] == {"cpu/block_linear": 6}
        assert len(answers(llm)) == len(PROMPTS)


def test_a_kernel_that_was_asked_for_by_name_runs_or_is_refused(models: Mapping[str, str]) -> None:
    args = EngineArgs(model=models["q4_0"], op=["linear=cpu/block_linear"])
    assert explain(args).implementations()["linear"] == {"cpu/block_linear": 8}  # in slots, too
    plan = explain(EngineArgs(model=models["q4_0"], op=["linear=cpu/packed_linear"]))
    assert plan.implementations()["linear"] == {"cpu/packed_linear": 8}
    (weights,) = (one for one in plan.weights if one.format.lower() == "q4_0")
    assert "--op linear=cpu/packed_linear was asked for" in weights.reason
    with pytest.raises(ConfigError, match=r"rms_norm=cpu/block_linear"):
        explain(EngineArgs(model=models["q4_0"], op=["rms_norm=cpu/block_linear"]))


def test_linears_that_were_asked_to_be_plain_torch_get_plain_weights(
    models: Mapping[str, str],
) -> None:
    """Else each call would turn the whole weight into numbers."""
    plan = explain(EngineArgs(model=models["q4_0"], op=["linear=native"]))
    assert plan.implementations()["linear"] == {"native": 8}
    (weights,) = (one for one in plan.weights if one.format.lower() == "q4_0")
    assert weights.where == "partly as stored"  # head and table stay
    assert all("linear" not in path for one in plan.stored for path in one.paths)


def test_without_the_native_library_weights_are_dequantized_and_that_is_told(
    models: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = NotBuilt("there is no compiler here")
    monkeypatch.setattr("dougong.cpu.native_library.get_library", lambda: missing)
    with LLM(models["q8_0"], num_kv_blocks=40) as llm:
        (plan,) = (one for one in llm.plan.weights if one.format.lower() == "q8_0")
        assert plan.where == "dequantized at load"
        assert "cpu/block_linear: needs dougong-cpu-native: there is no compiler" in plan.reason
        assert len(answers(llm)) == len(PROMPTS)


def test_bfloat16_is_as_near_to_float32_as_plain_bfloat16(models: Mapping[str, str]) -> None:
    with LLM(models["q4_1"], num_kv_blocks=40, dtype="float32") as llm:
        exact = np.array([logprobs[0] for _, logprobs in answers(llm)])
    errors = []
    for switches in (None, "none"):
        with LLM(models["q4_1"], num_kv_blocks=40, dtype="bfloat16", custom_ops=switches) as llm:
            found = np.array([logprobs[0] for _, logprobs in answers(llm)])
            errors.append(np.abs(found - exact).max())
    assert errors[0] < 2 * errors[1] + 0.01
    assert torch.isfinite(torch.tensor(errors)).all()
