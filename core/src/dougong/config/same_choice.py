"""Whether two values of an option ask for the same, however each was written."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dougong.config.dtypes import canonical_dtype
from dougong.config.graphs import parse_sizes
from dougong.config.op_switches import parse_op_switches
from dougong.errors import ConfigError

_DTYPES = ("dtype", "kv_cache_dtype")


def is_same_choice(name: str, one: Any, other: Any) -> bool:
    """Whether both ask for the same.

    Args:
        name: Of the option.
        one: A value; several are a list, or one text with commas.
        other: Another.
    """
    try:
        return bool(_settled(name, one) == _settled(name, other))
    except ConfigError:  # it cannot be read, which is told elsewhere
        return bool(_plain(one) == _plain(other))


def _settled(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _DTYPES:
        return canonical_dtype(str(value))
    if name == "custom_ops":
        return parse_op_switches(str(value), (), None)
    if name == "op":
        return parse_op_switches(None, _parts(value), None)
    if name == "graph_sizes":
        return parse_sizes(str(value)) or value
    if name == "attention_backend" and "=" in str(value):
        return frozenset("".join(part.split()) for part in _parts(value))
    return _plain(value)


def _plain(value: Any) -> Any:
    """The same whether it was read from JSON or not."""
    return tuple(value) if isinstance(value, list) else value


def _parts(value: str | Collection[str]) -> list[str]:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)
