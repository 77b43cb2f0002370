"""The core's tiny checkpoints, read from its tests, which are in no wheel."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import save_file

_SUPPORT = Path(__file__).parents[4] / "core" / "tests" / "support"
GREEDY_FIXTURE = _SUPPORT.parent / "engine" / "data" / "smollm2_greedy.json"
"""Prompts, and what `transformers` says of them."""


def _load(name: str) -> ModuleType:
    spec = spec_from_file_location(f"core_tests_{name}", _SUPPORT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_tiny = _load("tiny_models")


def write_checkpoint(folder: Path, **changes: Any) -> str:
    """A random Llama of some 100 000 parameters; ``changes`` are of its ``config.json``."""
    _tiny.write_tiny_checkpoint(folder, _tiny.tiny_config(**changes))
    return str(folder)


def write_encoder(folder: Path) -> str:
    """A random BERT of one layer that makes vectors."""
    hidden, inner, rows = 32, 48, {"word": 288, "position": 64, "token_type": 2}
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": rows["word"],
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": rows["position"],
        "torch_dtype": "float32",
    }
    shapes: dict[str, tuple[int, ...]] = {
        f"embeddings.{name}_embeddings.weight": (count, hidden) for name, count in rows.items()
    }
    layer = "encoder.layer.0"
    sizes = {
        **{f"{layer}.attention.self.{one}": (hidden, hidden) for one in ("query", "key", "value")},
        f"{layer}.attention.output.dense": (hidden, hidden),
        f"{layer}.intermediate.dense": (inner, hidden),
        f"{layer}.output.dense": (hidden, inner),
        "embeddings.LayerNorm": (hidden,),
        f"{layer}.attention.output.LayerNorm": (hidden,),
        f"{layer}.output.LayerNorm": (hidden,),
    }
    for name, size in sizes.items():
        shapes |= {f"{name}.weight": size, f"{name}.bias": size[:1]}
    draw = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(size, generator=draw) / 4 for name, size in shapes.items()}
    folder.mkdir(parents=True)
    _tiny.write_tiny_tokenizer(folder)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return str(folder)


def write_adapter(folder: Path, rank: int = 4) -> str:
    """A random adapter of every projection of the checkpoint without changes, as peft saves it."""
    folder.mkdir(parents=True)
    draw = torch.Generator().manual_seed(rank)
    tensors = {}
    for name, shape in _tiny.tensor_shapes(_tiny.tiny_config()):
        module = name.removesuffix(".weight")
        if module.endswith("_proj"):
            sizes = {"A": (rank, shape[1]), "B": (shape[0], rank)}
            for part, size in sizes.items():
                numbers = torch.randn(size, generator=draw) / size[1] ** 0.5
                tensors[f"base_model.model.{module}.lora_{part}.weight"] = numbers
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config), "utf-8")
    return str(folder)


def prompt_of(length: int, start: int = 5) -> list[int]:
    """Tokens of any tiny checkpoint."""
    return [(7 * position + start) % 250 for position in range(length)]
