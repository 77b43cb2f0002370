"""Compiles the portable kernels for families that their table does not have: with generic tiles.

Run by its path in the folder of those kernels, whose tests have the cases: the package ``tests`` is
theirs here. ``python compile_relatives.py OUT FAMILY``.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

LANES, LDS_BYTES = 32, 65536
"""Of every gfx11 chip."""


def main(out: str, family: str) -> None:
    """Write ``{case: result}`` as ``compile_stock`` does."""
    stock = importlib.import_module("tests.lane.compile_stock")
    cases = importlib.import_module("tests.lane.cases")
    generic = importlib.import_module("dougong_triton_kernels.targets").targets()["generic"]
    names = {"name": family, "backend": "hip", "arch": family}
    target = replace(generic, **names, warp_size=LANES, shared_bytes=LDS_BYTES)
    found = {name: stock.result(one, target) for name, one in cases.launches("generic").items()}
    Path(out).write_text(json.dumps(found, indent=1), "utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main(*sys.argv[1:])
