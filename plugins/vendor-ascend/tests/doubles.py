"""The doubles of this platform: which device stands below, and what of the plugin is another's.

``over_sim``: the simulated device's runtime, memory and collectives; the vendor's ops are
references.
``over_runtime``: the vendor's own torch_npu, over the double of the CL runtime (`tests.double`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dougong_conformance.ladder.platform_double import Double

FOLDER = str(Path(__file__).parent.parent)
FLOAT32_ATTENTION: Mapping[str, str] = {
    "ascend/fused_infer": "tests.references.float32_attention:Float32FusedInfer"
}
"""The vendor's op takes halves; its reference can also do float32, in which tokens can be compared
with the CPU's one by one. What was changed stands in the double's name."""

MEMORY_BYTES = 4 << 30
"""Of a doubled device, unless ASCEND_DOUBLE_MEMORY_BYTES says otherwise."""


def over_sim(arch: str, *, float32: bool = False) -> Double:
    """On the simulated device."""
    library = "310p" if arch == "310p" else "910b"
    function = f"install_{library}{'_float32' if float32 else ''}"
    return Double(
        plugin="ascend",
        arch=arch,
        device="sim",
        references=f"tests.references.stand_ins:{function}",
        import_path=FOLDER,
        attn_backends=FLOAT32_ATTENTION if float32 else None,
    )


def over_runtime(arch: str, *, float32: bool = False, num_devices: int = 1) -> Double:
    """On the vendor's runtime: for a process in the lane's environment, with the same machine."""
    return Double(
        plugin="ascend",
        arch=arch,
        device="",
        references="tests.references.stand_ins:extend_to_float32" if float32 else "",
        import_path=FOLDER,
        attn_backends=FLOAT32_ATTENTION if float32 else None,
        memory_bytes=MEMORY_BYTES,
        num_devices=num_devices,
    )
