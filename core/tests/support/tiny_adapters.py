"""Small random adapters as peft saves them, and what they add to the weights."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.support.tiny_models import tensor_shapes

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PREFIX = "base_model.model."


def adapter_pairs(
    config: Mapping[str, Any], targets: Sequence[str], rank: int, seed: int
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """A and B of every projection that is named, by the module's name."""
    generator = torch.Generator().manual_seed(1000 + seed)
    pairs = {}
    for name, shape in tensor_shapes(config):
        module, _, kind = name.rpartition(".")
        if kind == "weight" and module.rpartition(".")[2] in targets:
            a = torch.randn(rank, shape[1], generator=generator) / shape[1] ** 0.5
            b = torch.randn(shape[0], rank, generator=generator) / rank**0.5
            pairs[module] = a, b
    return pairs


def adapter_config(rank: int = 4, alpha: float = 6, **changes: Any) -> dict[str, Any]:
    """What peft writes into ``adapter_config.json``; ``changes`` replaces parts."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.05,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "modules_to_save": None,
        "rank_pattern": {},
        "alpha_pattern": {},
        "use_dora": False,
        "use_rslora": False,
        "target_modules": list(TARGETS),
        **changes,
    }


def write_adapter(
    folder: Path,
    config: Mapping[str, Any],
    *,
    seed: int = 0,
    targets: Sequence[str] = TARGETS,
    rank: int = 4,
    **changes: Any,
) -> Path:
    """Write an adapter for a checkpoint with this config; gives back ``folder``."""
    pairs = adapter_pairs(config, targets, rank, seed)
    tensors = {}
    for module, (a, b) in pairs.items():
        tensors[f"{PREFIX}{module}.lora_A.weight"] = a
        tensors[f"{PREFIX}{module}.lora_B.weight"] = b
    return write_adapter_files(folder, adapter_config(rank, **changes), tensors)


def write_adapter_files(
    folder: Path, config: Mapping[str, Any], tensors: dict[str, torch.Tensor]
) -> Path:
    """Write both files as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def adapter_deltas(
    config: Mapping[str, Any],
    *,
    seed: int = 0,
    targets: Sequence[str] = TARGETS,
    rank: int = 4,
    alpha: float = 6,
    use_rslora: bool = False,
) -> dict[str, torch.Tensor]:
    """What `write_adapter`'s adapter adds to each weight of the checkpoint, by name."""
    scale = alpha / (math.sqrt(rank) if use_rslora else rank)
    return {
        f"{module}.weight": scale * (b @ a)
        for module, (a, b) in adapter_pairs(config, targets, rank, seed).items()
    }
