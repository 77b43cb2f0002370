"""GPUs as the kernel driver lists them, read from ``/sys`` without a runtime and without a context.

The compute part of ``amdgpu`` shows one folder per node under ``/sys/class/kfd/kfd/topology``: host
processors and GPUs, each with a file of ``name value`` lines. A container sees the folders of GPUs
that it may not use, too, but not their contents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

TOPOLOGY = "sys/class/kfd/kfd/topology/nodes"
DRIVER_VERSION = "sys/module/amdgpu/version"
_HOST_NODE = 0
_PRIVATE_VRAM, _PUBLIC_VRAM = 2, 1  # heap types of a memory bank that are the GPU's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU of the machine, whatever masks are set.

    Attributes:
        node: Number in the driver's topology.
        arch: ``"gfx942"``.
        uuid: ``"GPU-"`` and sixteen hexadecimal digits, as the vendor's tools print it; partitions
            of one GPU share theirs, and the second and later ones end in ``/2`` and so on. Empty:
            the GPU has no serial number.
        memory_bytes: Its own; 0: unknown.
        memory_used_bytes: Of all processes; ``None``: unknown.
        num_compute_units: 0: unknown.
        is_integrated: The node is a host processor, too: the memory is the host's.
    """

    node: int
    arch: str
    uuid: str = ""
    memory_bytes: int = 0
    memory_used_bytes: int | None = None
    num_compute_units: int = 0
    is_integrated: bool = False


def arch_of(gfx_target_version: int) -> str:
    """The name of an instruction set: 90402 is ``gfx942``, 90010 ``gfx90a``, 110000 ``gfx1100``."""
    major, rest = divmod(gfx_target_version, 10000)
    minor, stepping = divmod(rest, 100)
    return f"gfx{major}{minor:x}{stepping:x}"


def read_gpus(root: Path) -> tuple[Gpu, ...]:
    """GPUs that this process may use, in the driver's order.

    Args:
        root: ``/``.
    """
    folder = root / TOPOLOGY
    numbers = sorted(int(one.name) for one in folder.glob("*") if one.name.isdecimal())
    found = (_read_node(root, folder / str(number), number) for number in numbers)
    return tuple(_with_own_uuids(gpu for gpu in found if gpu is not None))


def driver_version(root: Path) -> str:
    """Of the driver package; empty: the kernel's own driver, which states none."""
    return _text(root / DRIVER_VERSION)


def _read_node(root: Path, folder: Path, number: int) -> Gpu | None:
    facts = _facts(folder / "properties")
    target = facts.get("gfx_target_version", _HOST_NODE)
    if target == _HOST_NODE or not facts.get("simd_count"):
        return None
    memory, used = _memory(root, folder, facts)
    serial = facts.get("unique_id", 0)
    return Gpu(
        node=number,
        arch=arch_of(target),
        uuid=f"GPU-{serial:016x}" if serial else "",
        memory_bytes=memory,
        memory_used_bytes=used,
        num_compute_units=facts["simd_count"] // max(1, facts.get("simd_per_cu", 0)),
        is_integrated=facts.get("cpu_cores_count", 0) > 0,
    )


def _memory(root: Path, folder: Path, facts: Mapping[str, int]) -> tuple[int, int | None]:
    """Of the card where the node names one, else what the topology counts as the GPU's own."""
    card = root / f"sys/class/drm/renderD{facts.get('drm_render_minor', 0)}/device"
    total, used = (_number(card / f"mem_info_vram_{what}") for what in ("total", "used"))
    if total:
        return total, used
    banks = (_facts(bank / "properties") for bank in sorted(folder.glob("mem_banks/*")))
    own = (_PUBLIC_VRAM, _PRIVATE_VRAM)
    return sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in own), None


def _with_own_uuids(gpus: Iterator[Gpu]) -> Iterator[Gpu]:
    seen: dict[str, int] = {}
    for gpu in gpus:
        count = seen[gpu.uuid] = seen.get(gpu.uuid, 0) + 1
        yield replace(gpu, uuid=f"{gpu.uuid}/{count}") if gpu.uuid and count > 1 else gpu


def _facts(path: Path) -> dict[str, int]:
    """Lines ``name value``; nothing where the file may not be read."""
    pairs = (line.split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""
