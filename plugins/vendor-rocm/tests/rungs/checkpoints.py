"""The core's tiny checkpoints, read from its tests, which are in no wheel."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import load_file, save_file

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


def write_in(folder: Path, dtype: str, **changes: Any) -> str:
    """The checkpoint with weights of a dtype of its own, as most are published."""
    write_checkpoint(folder, torch_dtype=dtype, **changes)
    path = folder / "model.safetensors"
    weights = {name: weight.to(getattr(torch, dtype)) for name, weight in load_file(path).items()}
    save_file(weights, path, metadata={"format": "pt"})
    return str(folder)


def prompt_of(length: int, start: int = 5) -> list[int]:
    """Tokens of any tiny checkpoint."""
    return [(7 * position + start) % 250 for position in range(length)]
