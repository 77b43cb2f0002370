"""What ``npu-smi info`` tells of the chips: a table for people, read as such.

It opens no device context. Where it is missing, slow or prints what is not understood here,
nothing is known: names and memory are then read later, in the process that opens the device.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

_TIMEOUT_S = 10.0
_VERSION = re.compile(r"npu-smi\s+(\S+)")
_CARD_ROW = re.compile(r"^\|\s*\d+\s+(?P<name>[A-Za-z0-9_\-]*\d[A-Za-z0-9_\-]*)\s*\|\s*\S")
_CHIP_ROW = re.compile(
    r"^\|\s*\d+(?:\s+\d+)?\s*\|\s*[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s*\|(?P<rest>.*)\|"
)
_USED_OF_TOTAL = re.compile(r"(\d+)\s*/\s*(\d+)")
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Chip:
    """One chip of the table, in its order, which is that of the devices.

    Attributes:
        name: As printed.
        memory_bytes: Of the memory that tensors live in; 0: not printed.
    """

    name: str
    memory_bytes: int = 0


def ask_management() -> tuple[str, tuple[Chip, ...]]:
    """The driver's version and the chips; empty where the tool does not answer."""
    tool = shutil.which("npu-smi")
    if tool is None:
        return "", ()
    try:
        asked = subprocess.run(
            [tool, "info"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", ()
    return read_table(asked.stdout) if asked.returncode == 0 else ("", ())


def read_table(text: str) -> tuple[str, tuple[Chip, ...]]:
    """The same of a table that somebody has."""
    found = _VERSION.search(text)
    return found[1] if found else "", tuple(_chips(text))


def _chips(text: str) -> Iterator[Chip]:
    """A card has a row with its name and then one for each of its chips, with memory."""
    name = ""
    for line in text.splitlines():
        if (chip := _CHIP_ROW.match(line)) and name:
            totals = [int(total) for _, total in _USED_OF_TOTAL.findall(chip["rest"])]
            # Host-side memory comes first and HBM last; a card without HBM prints only the first.
            yield Chip(name, next((total for total in reversed(totals) if total), 0) * _MIB)
        elif card := _CARD_ROW.match(line):
            name = card["name"]
