"""L4: kernels compile to code objects for each family, within its limits, without a GPU.

The portable kernels by their own lane's program, for the families of this wheel that their table
has; AITER's unified attention by the program beside this file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dougong.contracts import read_claims

from dougong_rocm import library
from dougong_rocm.attention_aiter import AiterUnifiedBackend
from tests.shown import shows

pytestmark = [pytest.mark.lane, pytest.mark.timeout(600)]
PORTABLE = Path(__file__).parents[3] / "triton-kernels"
FAMILIES = ("gfx90a", "gfx942", "gfx950", "gfx1100")
RELATIVES = ("gfx1101", "gfx1102")
"""Of which the portable kernels' table has no tiles of their own."""


def run(folder: Path, *command: str) -> None:
    """In a process without the interpreter."""
    plain = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    subprocess.run([sys.executable, *command], cwd=folder, env=plain, check=True)


def compile_portable(family: str, out: Path) -> dict[str, Any]:
    """Every case of the portable kernels' own lane."""
    if family in RELATIVES:
        run(PORTABLE, str(Path(__file__).with_name("compile_relatives.py")), str(out), family)
    else:
        run(PORTABLE, "-m", "tests.lane.compile_stock", str(out), family)
    return read(out)


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def test_the_portable_kernels_compile_within_each_familys_limits(tmp_path: Path) -> None:
    with shows("L4", "the portable kernels compile for AMD's families") as shown:
        compiled, spilling = {}, {}
        for family in (*FAMILIES, *RELATIVES):
            found = compile_portable(family, tmp_path / family)
            planted = found.pop("planted", None)
            assert planted is None or planted["problems"], "the limits refuse nothing"
            problems = {name: one["problems"] for name, one in found.items() if one["problems"]}
            spilling[family] = sum(1 for one in found.values() if one["spills"])
            assert family in RELATIVES or problems == {}
            limit = read_claims("dougong_rocm", family).limits["rocm.lds_bytes"]
            assert max(one["shared"] for one in found.values()) <= limit
            compiled[family] = len(found)
        kernels = ", ".join(f"{count} for {family}" for family, count in compiled.items())
        shown.what = (
            f"the portable kernels compile with triton's AMD compiler ({kernels} variants), "
            "within each family's local memory, with no spill where none is allowed; on "
            f"{' and '.join(RELATIVES)}, for which there are no tiles of their own, "
            f"{max(spilling[one] for one in RELATIVES)} variants spill"
        )
        shown.details = {"variants": compiled, "spilling": spilling}


def test_aiters_unified_attention_fits_where_blocks_are_small(tmp_path: Path) -> None:
    """And where they are not it does not, which is why this wheel does not offer it there."""
    with shows("L4", "AITER's unified attention compiles within the limits") as shown:
        run(Path(__file__).parents[2], "-m", "tests.lane.compile_aiter", str(tmp_path / "found"))
        found = read(tmp_path / "found")
        offered = AiterUnifiedBackend.limits.block_sizes
        assert {(one["arch"], one["block_size"]) for one in found["taken"]} == {
            (arch, size) for arch in library.ARCHS for size in offered
        }
        assert [one for one in found["taken"] if one["shared"] > one["limit"]] == []
        assert [one for one in found["refused"] if one["shared"] <= one["limit"]] == []
        most = max(one["shared"] / one["limit"] for one in found["taken"])
        shown.what = (
            f"AITER's unified attention compiles for {' and '.join(sorted(library.ARCHS))} in "
            f"the block sizes that this wheel offers ({len(found['taken'])} variants: prefill, "
            f"decode, long decode), with at most {most:.0%} of the local memory; a block of 128 "
            "tokens on gfx942 does not fit"
        )
        shown.details = found
