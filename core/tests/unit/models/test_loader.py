from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch

from dougong.checkpoint import open_tensors, resolve_reference
from dougong.errors import CheckpointError, PluginError
from dougong.models.causal_lm import WeightTarget
from dougong.models.llama import LlamaForCausalLM
from dougong.models.loader import build_model, load_model, load_weights
from tests.support.tiny_models import random_weights, tiny_config, write_tiny_checkpoint

CPU = torch.device("cpu")


class MemorySource:
    """Tensors in memory, with a record of how they were asked for."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.tensors = dict(tensors)
        self.filled: list[str] = []
        self.copied: list[str] = []

    def names(self) -> tuple[str, ...]:
        return tuple(self.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)

    def format(self, name: str) -> str:
        return "F32" if self.tensors[name].dtype == torch.float32 else "BF16"

    def num_bytes(self, name: str) -> int:
        return self.tensors[name].nbytes

    def read(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        self.copied.append(name)
        return self.tensors[name].to(dtype)

    def read_into(self, name: str, out: torch.Tensor) -> None:
        assert out.is_contiguous()
        self.filled.append(name)
        out.copy_(self.tensors[name])

    def stored_row_bytes(self, name: str) -> int:
        return self.num_bytes(name) // self.tensors[name].shape[0]

    def read_stored_into(self, name: str, out: torch.Tensor) -> None:
        self.filled.append(name)
        out.copy_(self.tensors[name].view(torch.uint8))

    def items(self, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
        raise AssertionError("the loader reads by name")
        yield


def build(dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    model = build_model(LlamaForCausalLM, tiny_config(), dtype, CPU)
    assert isinstance(model, LlamaForCausalLM)
    return model


def test_every_tensor_reaches_its_place_in_file_order_and_without_a_copy() -> None:
    weights = random_weights(tiny_config())
    source, model = MemorySource(weights), build()
    load_weights(model, source)
    assert source.filled == list(weights)
    assert source.copied == []
    for name, target in model.weight_targets().items():
        assert torch.equal(target.view, weights[name]), name


def test_what_a_target_asks_to_add_is_added_after_conversion() -> None:
    class Shifted(LlamaForCausalLM):
        def weight_targets(self) -> Mapping[str, WeightTarget]:
            targets = dict(super().weight_targets())
            targets["model.norm.weight"] = WeightTarget(self.norm.weight, added=1.0)
            return targets

    weights = random_weights(tiny_config())
    model = build_model(Shifted, tiny_config(), torch.bfloat16, CPU)
    load_weights(model, MemorySource(weights))
    norm, other = (model.get_parameter(f"{name}.weight") for name in ("norm.norm", "lm_head"))
    assert torch.equal(norm, weights["model.norm.weight"].bfloat16() + 1)
    assert torch.equal(other, weights["lm_head.weight"].bfloat16())


def test_tensors_are_converted_to_the_models_dtype() -> None:
    weights = random_weights(tiny_config())
    model = build(torch.bfloat16)
    load_weights(model, MemorySource(weights))
    for name, target in model.weight_targets().items():
        assert torch.equal(target.view, weights[name].bfloat16()), name


def test_a_device_gets_one_converted_copy_of_each_tensor() -> None:
    source = MemorySource(random_weights(tiny_config()))
    model = build_model(LlamaForCausalLM, tiny_config(), torch.float32, torch.device("meta"))
    load_weights(model, source)
    assert source.copied == list(source.tensors)
    assert source.filled == []


def test_the_report_says_what_was_loaded() -> None:
    weights = random_weights(tiny_config())
    weights["model.norm.weight"] = weights["model.norm.weight"].bfloat16()
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)
    num_elements = sum(w.numel() for w in random_weights(tiny_config()).values())
    report = load_weights(build(torch.bfloat16), MemorySource(weights))
    assert report.num_tensors == 21
    assert report.formats == {"F32": 20, "BF16": 1}
    assert report.model_bytes == 2 * num_elements
    assert report.file_bytes == 4 * num_elements - 2 * 64
    assert report.ignored == ("model.layers.0.self_attn.rotary_emb.inv_freq",)
    assert report.seconds >= 0


def test_everything_that_does_not_fit_is_named_before_anything_is_read() -> None:
    weights = random_weights(tiny_config())
    del weights["model.layers.1.mlp.up_proj.weight"]
    weights["model.layers.0.self_attn.k_proj.weight"] = torch.zeros(64, 64)
    weights["model.layers.0.self_attn.q_norm.weight"] = torch.zeros(16)
    source = MemorySource(weights)
    with pytest.raises(CheckpointError) as caught:
        load_weights(build(), source)
    assert caught.value.problems == (
        "model.layers.1.mlp.up_proj.weight is missing",
        "model.layers.0.self_attn.k_proj.weight has shape (64, 64), the config asks for (32, 64)",
        "model.layers.0.self_attn.q_norm.weight has no place in this model",
    )
    assert source.filled == []


@pytest.mark.parametrize("says_tied", [False, True])
@pytest.mark.parametrize("is_tied", [False, True])
def test_the_files_decide_whether_the_head_is_tied(is_tied: bool, says_tied: bool) -> None:
    weights = random_weights(tiny_config(tie_word_embeddings=is_tied))
    config = tiny_config(tie_word_embeddings=says_tied)
    source = MemorySource(weights)
    model, report = load_model(LlamaForCausalLM, config, torch.float32, CPU, source)
    assert isinstance(model, LlamaForCausalLM)
    assert model.lm_head.is_tied is is_tied
    head = "model.embed_tokens.weight" if is_tied else "lm_head.weight"
    assert torch.equal(model.lm_head.weight, weights[head])
    assert report.num_tensors == len(weights)


class ForgetfulForCausalLM(LlamaForCausalLM):
    def weight_targets(self) -> Mapping[str, WeightTarget]:
        targets = dict(super().weight_targets())
        del targets["model.layers.0.self_attn.v_proj.weight"]
        return targets


def test_a_model_class_that_leaves_a_parameter_unfilled_is_named() -> None:
    model = build_model(ForgetfulForCausalLM, tiny_config(), torch.float32, CPU)
    with pytest.raises(
        PluginError, match=r"ForgetfulForCausalLM.*layers\.0\.attention\.qkv\.weight"
    ):
        load_weights(model, MemorySource(random_weights(tiny_config())))


def test_a_sharded_checkpoint_loads(tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path, num_shards=3, dtype=torch.bfloat16)
    source = open_tensors(resolve_reference(str(folder)))
    model, report = load_model(LlamaForCausalLM, tiny_config(), torch.float32, CPU, source)
    assert report.formats == {"BF16": 21}
    weights = random_weights(tiny_config())
    for name, target in model.weight_targets().items():
        assert torch.equal(target.view, weights[name].bfloat16().float()), name
