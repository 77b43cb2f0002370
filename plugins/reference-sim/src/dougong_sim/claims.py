"""Reads ``claims.toml``: capabilities as data, so that anyone can plan for a chip without it."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from dougong.contracts import Claims


def claims_of(arch: str) -> Claims:
    """Of a family; of one that is not in the file what holds for all of them, marked so."""
    stated = _file()
    family = stated["family"].get(arch)
    fields: dict[str, Any] = {**stated["generic"], **(family or {})}
    for name, value in fields.items():
        if isinstance(value, list):
            fields[name] = frozenset(value) if name == "features" else tuple(value)
    return Claims(arch=arch, is_generic=family is None, **fields)


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(files("dougong_sim").joinpath("claims.toml").read_text("utf-8"))
