from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dougong_conformance.zoo.adapters import ADAPTERS, added_weights, pairs_of, write_adapter
from dougong_conformance.zoo.decoder import Decoder, legal_noise
from dougong_conformance.zoo.models import MODELS
from dougong_conformance.zoo.vectors import vectors_of


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_number_is_the_same_in_every_compute_dtype(name: str) -> None:
    for _, a, b in pairs_of(ADAPTERS[name], MODELS["grouped"]):
        for numbers in (a, b, ADAPTERS[name].scale * b):
            for dtype in (torch.bfloat16, torch.float16):
                assert torch.equal(numbers.to(dtype).double(), numbers)


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_changes_answers_far_beyond_what_rounding_can(name: str) -> None:
    model = MODELS["grouped"]
    added = added_weights(ADAPTERS[name], model)
    prompt = max((one.prompt for one in vectors_of("grouped")), key=len)
    plain, changed = (
        Decoder(model, added=one).log_probabilities(prompt)[-1] for one in ({}, added)
    )
    noise = legal_noise(model, prompt, torch.float32, added)
    assert float((plain - changed).abs().max()) > 1000 * noise


def test_what_is_written_is_what_merging_adds(tmp_path: Path) -> None:
    adapter, model = ADAPTERS["whole"], MODELS["odd"]
    folder = write_adapter(adapter, model, tmp_path / "whole")
    config = json.loads((folder / "adapter_config.json").read_text("utf-8"))
    tensors = load_file(folder / "adapter_model.safetensors")
    added = added_weights(adapter, model)
    assert len(added) == 7 * model.config["num_hidden_layers"]
    for name, delta in added.items():
        prefix = f"base_model.model.{name.removesuffix('.weight')}"
        a, b = (tensors[f"{prefix}.lora_{part}.weight"].double() for part in "AB")
        assert torch.equal(config["lora_alpha"] / config["r"] * (b @ a), delta)
