"""Adapters' files: what peft saves is read, and anything else is refused by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from dougong.errors import RequestError
from dougong.lora import read_adapter
from tests.support.tiny_adapters import (
    PREFIX,
    adapter_config,
    adapter_pairs,
    write_adapter,
    write_adapter_files,
)
from tests.support.tiny_models import tiny_config

CONFIG = tiny_config()
MODULE = "model.layers.0.self_attn.q_proj"
A, B = f"{PREFIX}{MODULE}.lora_A.weight", f"{PREFIX}{MODULE}.lora_B.weight"


def pair(rank: int = 4) -> dict[str, torch.Tensor]:
    return {A: torch.ones(rank, 64), B: torch.ones(64, rank)}


@pytest.mark.parametrize(("use_rslora", "scale"), [(False, 6 / 4), (True, 3.0)])
def test_every_pair_is_read_with_its_scale_in_b(
    tmp_path: Path, use_rslora: bool, scale: float
) -> None:
    path = write_adapter(tmp_path, CONFIG, seed=1, use_rslora=use_rslora)
    found = read_adapter(str(path))
    expected = adapter_pairs(CONFIG, ("q_proj", "down_proj"), 4, 1)
    everything = adapter_pairs(CONFIG, adapter_config()["target_modules"], 4, 1)
    assert found.rank == 4
    assert set(found.pairs) == set(everything)
    assert len(expected) == 4
    for module, (a, b) in everything.items():
        torch.testing.assert_close(found.pairs[module].a, a)
        torch.testing.assert_close(found.pairs[module].b, scale * b)


def test_half_precision_is_read_as_float32(tmp_path: Path) -> None:
    tensors = {name: tensor.bfloat16() for name, tensor in pair().items()}
    found = read_adapter(str(write_adapter_files(tmp_path, adapter_config(), tensors)))
    assert found.pairs[MODULE].a.dtype is torch.float32


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"peft_type": "IA3"}, "peft_type='IA3'"),
        ({"r": 0}, "r=0 is no rank"),
        ({"r": True}, "r=True is no rank"),
        ({"r": "8"}, "r='8' is no rank"),
        ({"r": 10**9}, "is no rank from 1 to 4096"),
        ({"lora_alpha": None}, "lora_alpha=None is no number"),
        ({"bias": "all"}, "bias='all' is not computed here"),
        ({"use_dora": True}, "use_dora=True"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save="),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern="),
        ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern="),
        ({"fan_in_fan_out": True}, "fan_in_fan_out=True"),
        ({"init_lora_weights": "pissa_niter_4"}, "changed the base model's weights"),
    ],
)
def test_what_is_not_computed_is_refused_by_its_name(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    write_adapter_files(tmp_path, {**adapter_config(), **changes}, pair())
    with pytest.raises(RequestError, match=why) as caught:
        read_adapter(str(tmp_path))
    assert caught.value.field == "lora_path"


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    write_adapter_files(tmp_path, adapter_config(bias="all", use_dora=True), pair())
    with pytest.raises(RequestError, match=r"use_dora=True.*bias='all'"):
        read_adapter(str(tmp_path))


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({}, "holds no tensor"),
        ({A: torch.ones(4, 64)}, "one of the two tensors"),
        (pair(rank=8), "no pair of rank r=4"),
        ({A: torch.ones(4, 64), B: torch.ones(64)}, "no pair of rank"),
        ({**pair(), f"{PREFIX}lm_head.weight": torch.ones(2, 2)}, r"lm_head.weight are no part"),
        (
            {f"{PREFIX}model.embed_tokens.lora_embedding_A": torch.ones(4, 8)},
            "embed_tokens.lora_embedding_A are no part",
        ),
        ({**pair(), f"{PREFIX}{MODULE}.lora_magnitude_vector": torch.ones(64)}, "magnitude_vector"),
        ({A: torch.full((4, 64), torch.inf), B: torch.ones(64, 4)}, "infinite or none"),
        ({A: torch.ones(4, 64), B: torch.full((64, 4), torch.nan)}, "infinite or none"),
    ],
)
def test_tensors_that_are_no_adapter_are_refused_by_name(
    tmp_path: Path, tensors: dict[str, torch.Tensor], why: str
) -> None:
    write_adapter_files(tmp_path, adapter_config(), tensors)
    with pytest.raises(RequestError, match=why) as caught:
        read_adapter(str(tmp_path))
    assert caught.value.field == "lora_path"


def test_missing_and_damaged_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"adapter_config.json cannot be read"):
        read_adapter(str(tmp_path / "nowhere"))
    config = tmp_path / "adapter_config.json"
    for text, why in (("{", "is no JSON"), ("[" * 100_000, "is no JSON"), ("[]", "no object")):
        config.write_text(text)
        with pytest.raises(RequestError, match=why):
            read_adapter(str(tmp_path))
    config.write_text(" " * (2**20 + 1))
    with pytest.raises(RequestError, match="is larger than"):
        read_adapter(str(tmp_path))
    config.write_text(json.dumps(adapter_config()))
    (tmp_path / "adapter_model.bin").write_bytes(b"x")
    with pytest.raises(RequestError, match=r"adapter_model.bin is never read"):
        read_adapter(str(tmp_path))
    save_file(pair(), tmp_path / "adapter_model.safetensors")
    read_adapter(str(tmp_path))
    whole = (tmp_path / "adapter_model.safetensors").read_bytes()
    for damaged in (whole[:-8], whole[:20], b""):
        (tmp_path / "adapter_model.safetensors").write_bytes(damaged)
        with pytest.raises(RequestError, match="cannot be loaded"):
            read_adapter(str(tmp_path))
