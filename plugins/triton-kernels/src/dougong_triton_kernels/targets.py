"""What is known of chips, as data: limits, and the sizes of tiles that keep to them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

from dougong_triton_kernels.launching import is_interpreted

GENERIC = "generic"
"""The target of a chip that the table does not have: small tiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """Sizes of one attention kernel.

    Attributes:
        head_bytes: Largest padded head that it is for.
        item_bytes: Largest element that it is for.
        tile: Tokens of the cache per step.
        rows: Query rows per program; 0: the kernel has no choice.
        num_warps: Per program.
        num_stages: Of the software pipeline.
        may_spill: No size keeps this kernel in registers; it is slow, and right.
    """

    head_bytes: int
    item_bytes: int = 4
    tile: int
    rows: int = 0
    num_warps: int
    num_stages: int
    may_spill: bool = False

    @property
    def options(self) -> dict[str, int]:
        """Of the compiler."""
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One chip.

    Attributes:
        name: In the table.
        backend: Triton's name of the backend; empty: no compiler is held to this one.
        arch: Triton's name of the chip.
        warp_size: Threads per warp.
        shared_bytes: On-chip memory that one program may have.
        decode: Tiles of decode, by size of head.
        mixed: Tiles of prefill and mixed steps.
    """

    name: str
    backend: str = ""
    arch: str | int = ""
    warp_size: int = 32
    shared_bytes: int
    decode: tuple[Tiles, ...]
    mixed: tuple[Tiles, ...]

    def tiles(self, phase: str, head_dim: int, item_bytes: int) -> Tiles:
        """The first row that fits.

        Args:
            phase: ``"decode"`` or ``"mixed"``.
            head_dim: Elements of one head, padded to a power of two.
            item_bytes: Of one element.

        Raises:
            ValueError: No row is for heads of that size.
        """
        rows: tuple[Tiles, ...] = getattr(self, phase)
        head_bytes = head_dim * item_bytes
        for row in rows:
            if head_bytes <= row.head_bytes and item_bytes <= row.item_bytes:
                return row
        raise ValueError(
            f"A head of {head_bytes} bytes has no tile on {self.name}; the largest is "
            f"{rows[-1].head_bytes}. Use another attention backend"
        )


@cache
def targets() -> dict[str, Target]:
    """The table, ``"generic"`` included."""
    text = files("dougong_triton_kernels").joinpath("targets.toml").read_text("utf-8")
    return {name: _target(name, row) for name, row in tomllib.loads(text).items()}


def target(arch: str) -> Target:
    """Of one chip, or the generic one.

    Args:
        arch: As the table has it, ``"gfx942"`` or ``"sm_90"``; what follows a colon is left out.
    """
    known = targets()
    return known.get(arch.partition(":")[0], known[GENERIC])


@cache
def current_arch() -> str:
    """The chip of triton's active driver, by its name in the table or else by triton's own.

    Imports triton, and its driver may open the device. Under the interpreter there is none:
    ``"generic"``. Asked once per process.

    Raises:
        TritonMissingError: Triton is not installed.
        RuntimeError: Triton's, where it finds no driver.
    """
    if is_interpreted():
        return GENERIC
    found = import_module("triton").runtime.driver.active.get_current_target()
    return f"sm_{found.arch}" if found.backend == "cuda" else str(found.arch)


def _target(name: str, row: dict[str, Any]) -> Target:
    tiles = {phase: tuple(Tiles(**one) for one in row[phase]) for phase in ("decode", "mixed")}
    return Target(name=name, **{**row, **tiles})
