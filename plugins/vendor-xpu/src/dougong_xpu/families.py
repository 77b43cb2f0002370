"""Chip families by PCI device id, as the kernel driver's tables group them.

Only families that the wheel has claims for are listed. Any other id is a family of its own name,
``"pci-4680"``, which gets the claims that hold for every device.
"""

from __future__ import annotations

VENDOR_ID = 0x8086

_NAMES = {
    "pvc": "Intel Data Center GPU Max",
    "bmg": "Intel Arc B-Series or Arc Pro B-Series",
    "lnl": "Intel Arc Graphics 130V or 140V",
    "ptl": "Intel Graphics of Core Ultra series 3",
    "dg2": "Intel Arc A-Series or Data Center GPU Flex",
}

_DEVICE_IDS = {
    "pvc": "0b69 0b6e 0bd4 0bd5 0bd6 0bd7 0bd8 0bd9 0bda 0bdb 0be0 0be1 0be5",
    "bmg": "e202 e209 e20b e20c e20d e210 e211 e212 e215 e216 e220 e221 e222 e223",
    "lnl": "6420 64a0 64b0",
    "ptl": "b080 b081 b082 b083 b084 b085 b086 b087 b08f b090 b0a0 b0b0 fd80 fd81",
    "dg2": (
        "5690 5691 5692 5693 5694 5695 5696 5697 56a0 56a1 56a2 56a3 56a4 56a5 56a6 "
        "56b0 56b1 56b2 56b3 56ba 56bb 56bc 56bd 56be 56bf 56c0 56c1 56c2"
    ),
}

_FAMILY = {int(one, 16): family for family, ids in _DEVICE_IDS.items() for one in ids.split()}

_INTEGRATED = frozenset({"lnl", "ptl"})


def family_of(device_id: int) -> str:
    """Family of a PCI device id; of one that is not listed ``"pci-"`` and the id."""
    return _FAMILY.get(device_id, f"pci-{device_id:04x}")


def name_of(device_id: int) -> str:
    """What the family is sold as; the driver's own name is known to the runtime alone."""
    return _NAMES.get(family_of(device_id), f"Intel GPU {device_id:04x}")


def is_integrated_family(device_id: int) -> bool:
    """Whether chips of this family are parts of a processor."""
    return family_of(device_id) in _INTEGRATED
