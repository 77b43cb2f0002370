"""Doubles of two families: one whose kernels are AITER's, one whose kernels are Triton's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dougong_conformance.ladder.platform_double import Double

_HERE = str(Path(__file__).parents[2])

AITER = Double(
    plugin="rocm",
    arch="gfx942",
    device="sim",
    references="tests.references.install:aiter",
    import_path=_HERE,
)
PUBLISHED = replace(AITER, references="tests.references.install:published")
"""AITER's published release, whose paged attention cannot be built."""
TRITON = Double(
    plugin="rocm",
    arch="gfx1100",
    device="sim",
    references="tests.references.install:triton",
    import_path=_HERE,
)
