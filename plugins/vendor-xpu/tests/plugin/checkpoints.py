"""The core's tiny checkpoints, read from its tests, which are in no wheel."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

_SUPPORT = Path(__file__).parents[4] / "core" / "tests" / "support"


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
    """A random model with heads of 64 elements; ``changes`` are of its ``config.json``."""
    sizes = {
        "hidden_size": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 96,
    }
    _tiny.write_tiny_checkpoint(folder, _tiny.tiny_config(**(sizes | changes)))
    return str(folder)


def prompt_of(length: int, start: int) -> list[int]:
    """Tokens of any tiny checkpoint."""
    return [(7 * position + start) % 250 for position in range(length)]
