"""The plugin's calls of the vendor's ops, as they stand in its source."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from dougong_conformance.ladder import calls
from dougong_conformance.ladder.call_sites import Call

NAMESPACES = frozenset({"npu", "atb"})
SOURCE = Path(__file__).parents[2] / "src" / "dougong_ascend"


@cache
def of_the_plugin() -> tuple[Call, ...]:
    """All of them."""
    return calls.vendor_calls(SOURCE, NAMESPACES)
