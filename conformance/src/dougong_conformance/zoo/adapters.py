"""Adapters of the zoo: low-rank parts for its models, written as peft saves them.

As in `dougong_conformance.zoo.models` every number is a whole one times a power of two, and so is
the scale: every compute dtype holds them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from dougong_conformance.zoo.models import ZooModel, drawn_whole, tensor_shapes

_UNIT = 512
MAX_RANK = 8


@dataclass(frozen=True, slots=True)
class ZooAdapter:
    """One adapter, for any model of the zoo.

    Attributes:
        name: For messages.
        seed: Of its numbers.
        rank: ``r``.
        alpha: ``lora_alpha``; the scale is ``alpha / rank``.
        targets: Names of projections.
    """

    name: str
    seed: int
    rank: int
    alpha: int
    targets: tuple[str, ...]

    @property
    def scale(self) -> float:
        """What the product is multiplied by."""
        return self.alpha / self.rank


_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")

ADAPTERS: Mapping[str, ZooAdapter] = {
    one.name: one
    for one in (
        ZooAdapter("whole", 101, 4, 8, (*_ATTENTION, *_MLP)),
        ZooAdapter("attention", 102, MAX_RANK, 8, ("q_proj", "v_proj")),
        ZooAdapter("narrow", 103, 1, 2, ("k_proj", "down_proj")),
    )
}
"""By name."""


def pairs_of(
    adapter: ZooAdapter, model: ZooModel
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Projection, ``A`` and ``B`` of each that the adapter has, float64, not scaled."""
    seed = adapter.seed
    for name, shape in tensor_shapes(model.config):
        module = name.removesuffix(".weight")
        if module == name or module.rpartition(".")[2] not in adapter.targets:
            continue
        rows, columns = shape
        seed += 1000
        numbers = drawn_whole(seed, adapter.rank * (rows + columns)) / _UNIT
        size = adapter.rank * columns
        a, b = numbers[:size], numbers[size:]
        yield module, a.view(adapter.rank, columns), b.view(rows, adapter.rank)


def added_weights(adapter: ZooAdapter, model: ZooModel) -> dict[str, torch.Tensor]:
    """What merging adds to the model's weights, by their names, float64."""
    return {
        f"{module}.weight": adapter.scale * (b @ a) for module, a, b in pairs_of(adapter, model)
    }


def write_adapter(adapter: ZooAdapter, model: ZooModel, folder: Path) -> Path:
    """Write it as peft does, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "target_modules": sorted(adapter.targets),
        "bias": "none",
        "use_rslora": False,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = {}
    for module, a, b in pairs_of(adapter, model):
        for part, numbers in (("A", a), ("B", b)):
            name = f"base_model.model.{module}.lora_{part}.weight"
            tensors[name] = numbers.float().contiguous()
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder
