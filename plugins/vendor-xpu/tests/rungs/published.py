"""What the two kernel providers published, and where the plugin calls it."""

from __future__ import annotations

from pathlib import Path

from dougong_conformance.ladder.call_sites import Call
from dougong_conformance.ladder.calls import bind, vendor_calls
from dougong_conformance.ladder.golden import read_golden

import dougong_xpu

GOLDEN_FOLDER = Path(__file__).parents[1] / "golden"
KERNELS = read_golden(GOLDEN_FOLDER / "vllm_xpu_kernels-0.1.16.2.schemas.json")
EXTENSION = read_golden(GOLDEN_FOLDER / "intel_extension_for_pytorch-2.8.0.schemas.json")

NAMESPACES = ("_C", "_C_cache_ops", "_moe_C", "_vllm_fa2_C", "_xpu_C")
EXTENSION_ROOTS = {
    "dougong_xpu.ipex_library.functional": "ipex",
    "dougong_xpu.ipex_library.paged": "ipex_paged",
}
SOURCE = Path(dougong_xpu.__file__).parent


def kernel_calls(folder: Path = SOURCE) -> tuple[Call, ...]:
    """Calls to vllm-xpu-kernels, through torch's dispatcher."""
    return vendor_calls(folder, NAMESPACES)


def extension_calls(folder: Path = SOURCE) -> tuple[Call, ...]:
    """Calls to Intel's extension: Python functions behind one module."""
    return vendor_calls(folder, roots=EXTENSION_ROOTS)


def problems_with_kernels(
    folder: Path = SOURCE, seen: tuple[str, ...] = NAMESPACES
) -> tuple[str, ...]:
    """What does not bind; nothing: L0 for this provider."""
    return bind(kernel_calls(folder), KERNELS, seen)


def problems_with_extension(folder: Path = SOURCE) -> tuple[str, ...]:
    """What does not bind; nothing: L0 for this provider."""
    return bind(extension_calls(folder), EXTENSION, tuple(EXTENSION_ROOTS.values()))


def ops_with_tensors() -> frozenset[str]:
    """Ops of vllm-xpu-kernels that the plugin calls with tensors."""
    import torch

    called = {call.op for call in kernel_calls() if not call.is_question}
    parsed = {op: torch._C.parse_schema(KERNELS.schemas[op]) for op in called}
    return frozenset(
        op
        for op, schema in parsed.items()
        if any("Tensor" in str(one.type) for one in schema.arguments)
    )
