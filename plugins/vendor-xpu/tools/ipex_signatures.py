"""Signatures of the functions of Intel's extension that the plugin calls, as a golden file.

    python -m tools.ipex_signatures FILE      writes what the installed extension has

They are Python functions and no ops of torch's dispatcher, so they are written down in the language
of its schemas, where calls can be bound to them without the extension. Types come from the
functions' own annotations, defaults from their signatures.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

FUNCTIONS = ("rms_norm", "add_rms_norm", "silu_mul", "gelu_mul", "rotary_embedding")
PAGED = ("reshape_and_cache", "single_query_cached_kv_attention", "flash_attn_varlen_func")
NAMESPACES = ("ipex", "ipex_paged")

# The functions' annotations name no type that may be None; their documentation does.
_MAY_BE_NONE = frozenset({"alibi_slopes", "bias", "out", "position_ids", "residual"})
_OF_THEIR_DEFAULT = {str: "str", float: "float", int: "int"}
_UNSAID = {"scale": "float"}


def signatures() -> dict[str, str]:
    """Name → schema of the extension that is installed.

    Raises:
        ModuleNotFoundError: None is.
    """
    package = "intel_extension_for_pytorch.llm"
    functional = importlib.import_module(f"{package}.functional")
    paged = importlib.import_module(f"{package}.modules").PagedAttention
    groups = (("ipex", functional, FUNCTIONS), ("ipex_paged", paged, PAGED))
    return {
        f"{namespace}::{name}": schema_of(f"{namespace}::{name}", getattr(owner, name))
        for namespace, owner, names in groups
        for name in names
    }


def schema_of(op: str, function: Callable[..., Any]) -> str:
    """A function's signature as a schema; what it returns is left open.

    Raises:
        ValueError: A parameter's type is not said, neither by it nor by its default.
    """
    parameters = inspect.signature(function).parameters
    arguments = [_argument(op, parameter) for parameter in parameters.values()]
    return f"{op}({', '.join(arguments)}) -> Any"


def _argument(op: str, parameter: inspect.Parameter) -> str:
    text = f"{_type(op, parameter)} {parameter.name}"
    if parameter.default is inspect.Parameter.empty:
        return text
    default = parameter.default
    return f"{text}={json.dumps(default) if isinstance(default, str) else default}"


def _type(op: str, parameter: inspect.Parameter) -> str:
    name = getattr(parameter.annotation, "__name__", str(parameter.annotation))
    if name in _OF_THEIR_DEFAULT.values() or name == "bool":
        return name
    if name == "Tensor":
        return "Tensor?" if parameter.name in _MAY_BE_NONE else "Tensor"
    found = _OF_THEIR_DEFAULT.get(type(parameter.default)) or _UNSAID.get(parameter.name)
    if found is None:
        raise ValueError(f"{op}: the type of {parameter.name} is not said")
    return found


def write(path: Path, found: Mapping[str, str]) -> None:
    """Write a golden file."""
    path.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), signatures())
