"""The instruction sets the kernels can be compiled for, best first."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")


@dataclass(frozen=True, slots=True)
class InstructionLevel:
    """One way to compile every kernel."""

    name: str
    needs: frozenset[str]  # features, as `features.detect_features` names them
    flags: tuple[str, ...]


LEVELS = (
    InstructionLevel(
        "avx512_bf16",
        frozenset({"isa.avx2", "isa.avx512f", "mm.bf16.avx512"}),
        (*_AVX512, "-mavx512bf16"),
    ),
    InstructionLevel("avx512", frozenset({"isa.avx2", "isa.avx512f"}), _AVX512),
    InstructionLevel("avx2", frozenset({"isa.avx2"}), _AVX2),
)


def usable_levels(features: AbstractSet[str]) -> tuple[InstructionLevel, ...]:
    """Levels whose instructions are all among ``features``, best first."""
    return tuple(level for level in LEVELS if level.needs <= features)
