"""Which chip family a chip belongs to, told by each of the names that it goes by.

The vendor's runtime numbers chips (``torch_npu.npu.get_soc_version()``), ``npu-smi`` and the
runtime name them, and the bus gives them an id of their own. What none of these tables knows is no
family here: it keeps its name, and gets the claims that hold for every chip.
"""

from __future__ import annotations

import re

_SOC_NUMBERS = (
    (range(200, 206), "310p"),
    (range(220, 226), "910b"),
    (range(250, 256), "a3"),
    (range(260, 261), "a5"),
)
_NAMES = (
    (re.compile(r"310P\d?(?![A-Z0-9])"), "310p"),
    # A digit makes the difference: "910B" alone is a chip of the generation before, with no
    # bfloat16.
    (re.compile(r"910B[1-4]"), "910b"),
    (re.compile(r"910_?93\d\d"), "a3"),
    (re.compile(r"(?<!\d)93[6-9]\d(?!\d)"), "a3"),
    (re.compile(r"950(PR|DT)?"), "a5"),
)
_BUS_IDS = {0xD500: "310p", 0xD802: "910b", 0xD803: "a3"}

VENDOR_BUS_ID = 0x19E5
"""Of the vendor, as ``/sys/bus/pci/devices/*/vendor`` has it."""


def family_of_soc(number: int) -> str:
    """Of a number that the runtime gives; ``"soc-240"`` for one that nobody knows here."""
    for numbers, family in _SOC_NUMBERS:
        if number in numbers:
            return family
    return f"soc-{number}"


def family_of_name(name: str) -> str:
    """Of a name (``"Ascend910B3"``, ``"310P3"``); the name itself, in small letters, where it says
    none; empty for an empty one."""
    wanted = name.strip().upper()
    for pattern, family in _NAMES:
        if pattern.search(wanted):
            return family
    return wanted.lower()


def family_of_bus_id(device_id: int) -> str:
    """Of a PCI device id; empty: it is no chip that is known here."""
    return _BUS_IDS.get(device_id, "")
