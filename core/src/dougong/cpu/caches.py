"""Sizes of this machine's caches, which kernels cut their work to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_SIZE = re.compile(r"(\d+)([KMG]?)")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
LINE_BYTES = "cpu.cache_line_bytes"
# (level, type) as the kernel writes them → name of the limit.
_NAMES = {
    ("1", "Data"): "cpu.l1d_bytes",
    ("2", "Unified"): "cpu.l2_bytes",
    ("3", "Unified"): "cpu.l3_bytes",
}


def read_caches(root: Path = Path("/")) -> dict[str, int]:
    """Limit → bytes: one line, and each level that the first usable processor sees.

    ``cpu.l1d_bytes`` and ``cpu.l2_bytes`` are one core's, ``cpu.l3_bytes`` is shared. What the
    kernel does not state (no such files in some containers and virtual machines) is left out.

    Args:
        root: Where ``sys`` lies.
    """
    found: dict[str, int] = {}
    for folder in sorted(root.glob("sys/devices/system/cpu/cpu0/cache/index*")):
        found |= dict(_limits(folder))
    return found


def _limits(folder: Path) -> Iterator[tuple[str, int]]:
    name = _NAMES.get((_text(folder / "level"), _text(folder / "type")))
    size = _SIZE.fullmatch(_text(folder / "size"))
    if name and size:
        yield name, int(size[1]) * _UNITS[size[2]]
    line = _text(folder / "coherency_line_size")
    if name and line.isdigit():
        yield LINE_BYTES, int(line)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
