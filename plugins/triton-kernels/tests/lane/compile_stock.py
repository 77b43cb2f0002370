"""Compile with stock triton for the chips of the table: AMD's and NVIDIA's compilers are inside it.

Run by ``tests/lane/test_compile_stock.py``: ``python -m tests.lane.compile_stock OUT.json CHIP``.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from dougong_triton_kernels.ahead import compile_ahead
from dougong_triton_kernels.launching import Launch
from dougong_triton_kernels.targets import Target, targets
from tests.lane.cases import launches

_MATRIX = re.compile(r"\b(v_mfma|v_wmma|mma\.sync|wgmma\.mma_async)")

PLANTED = {
    "gfx942": {"tile": 256, "num_stages": 1},
    "sm_90": {"tile": 128, "num_stages": 5},
}
"""Tiles of 256 elements per token that neither memory nor registers of the chip hold."""


def result(launch: Launch, target: Target) -> dict[str, Any]:
    """As the tests read it."""
    made = compile_ahead(launch, target)
    return {
        "shared": made.shared_bytes,
        "spills": made.spills,
        "may_spill": made.may_spill,
        "matrix": len(_MATRIX.findall(made.assembly)),
        "problems": list(made.problems()),
    }


def main(out: str, chip: str) -> None:
    """Write ``{case: result}``; ``planted`` is one that the limits must refuse."""
    target = targets()[chip]
    known = launches(chip)
    found = {name: result(launch, target) for name, launch in known.items()}
    if chip in PLANTED:
        big = known["decode attention bf16 256"]
        tile = {**big.constants, "TILE": PLANTED[chip]["tile"]}
        options = {**big.options, "num_stages": PLANTED[chip]["num_stages"]}
        found["planted"] = result(replace(big, constants=tile, options=options), target)
    Path(out).write_text(json.dumps(found, indent=1), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
