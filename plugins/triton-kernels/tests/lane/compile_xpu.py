"""Compile for Intel's Xe, with Intel's triton: to SPIR-V, which a machine's driver compiles on.

Run by ``tests/lane/test_compile_xpu.py`` with the Python of an environment that has ``triton-xpu``:
``python -m tests.lane.compile_xpu OUT.json CASE...``.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dougong_triton_kernels.ahead import constants, signature
from dougong_triton_kernels.launching import Launch, kernel
from tests.lane.cases import launches

# As Intel documents Data Center GPU Max; a device would be asked.
DATA_CENTER_GPU_MAX = {
    "name": "Intel(R) Data Center GPU Max 1550",
    "architecture": 0,
    "gpu_eu_count": 512,
    "gpu_subslice_count": 64,
    "max_work_group_size": 1024,
    "max_num_sub_groups": 64,
    "sub_group_sizes": [16, 32],
    "has_fp64": True,
    "has_subgroup_matrix_multiply_accumulate": True,
    "has_subgroup_matrix_multiply_accumulate_tensor_float32": True,
    "has_subgroup_2d_block_io": True,
    "has_bfloat16_conversions": True,
}
SHARED_BYTES = 131072


def compile_xpu(launch: Launch) -> Any:
    """Triton's compiled kernel."""
    target = import_module("triton.backends.compiler").GPUTarget("xpu", DATA_CENTER_GPU_MAX, 32)
    types, values = signature(launch), constants(launch)
    source = import_module("triton.compiler").ASTSource(
        fn=kernel(launch.kernel), signature=types, constexprs=values
    )
    options = dict(launch.options)
    return import_module("triton.compiler").compile(source, target=target, options=options)


def main(out: str, *names: str) -> None:
    """Write ``{case: {"spv": bytes, "shared": bytes, "matrix": count, "error": text}}``."""
    # It asks a C++ helper, built against SYCL, for the chip's name, to ask `ocloc` for what stands
    # above. The backend is loaded under no name, so the helper is replaced where it is used.
    backend = import_module("triton.backends").backends["intel"].compiler
    parser = SimpleNamespace(parse_device_arch=lambda number: "")
    backend.__init__.__globals__["compile_module_from_src"] = lambda *names: parser
    found = {}
    known = launches("xpu")
    for name in names:
        try:
            made = compile_xpu(known[name])
        except Exception as error:  # noqa: BLE001 - whatever the vendor's code raises is the result
            found[name] = {
                "spv": 0,
                "shared": 0,
                "matrix": 0,
                "error": f"{type(error).__name__}: {error}",
            }
            continue
        found[name] = {
            "spv": len(made.asm["spv"]),
            "shared": made.metadata.shared,
            "matrix": made.asm["ttgir"].count("triton_intel_gpu.dpas"),
            "error": "",
        }
    Path(out).write_text(json.dumps(found, indent=1), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
