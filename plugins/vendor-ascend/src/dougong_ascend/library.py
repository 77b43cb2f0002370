"""Loads the vendor's libraries in a worker, and says which ops are there.

Everything else reaches an op through ``torch.ops``, when it is called: so nothing of the vendor is
imported while planning, and what answers is whatever is registered then.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from dougong.contracts import KernelReport

from dougong_ascend.families import family_of_soc
from dougong_ascend.names import FUSED_INFER, PAGED_NZ, TORCH_NPU
from dougong_ascend.software import torch_npu_version

_OPS: Mapping[str, tuple[tuple[str, str], ...]] = {
    TORCH_NPU: (
        ("npu", "npu_rms_norm"),
        ("npu", "npu_add_rms_norm"),
        ("npu", "npu_swiglu"),
        ("npu", "npu_rotary_mul"),
    ),
    FUSED_INFER: (("npu", "npu_scatter_pa_kv_cache"), ("npu", "npu_fused_infer_attention_score")),
    PAGED_NZ: (
        ("atb", "_npu_reshape_and_cache"),
        ("atb", "_npu_paged_attention"),
        ("atb", "_npu_paged_attention_splitfuse_v2"),
    ),
}
_NOT_ON_310P = "this chip is a 310P, which has no npu_fused_infer_attention_score"
_ONLY_ON_310P = "its layout of the cache is that of the 310P, and this chip is another ({family})"
_NO_ATB = (
    "this process has no {ops}: install NNAL (ATB) in the version of CANN, and source its "
    "set_env.sh before Python starts"
)


def load_torch_npu() -> None:
    """Import torch-npu, which registers the device type; nothing where something has done so.

    Raises:
        ImportError: It, or a library of the toolkit, is not there.
    """
    if not hasattr(torch, "npu"):
        importlib.import_module("torch_npu")


def report_kernels() -> KernelReport:
    """What can be called on the current device; what cannot, with the reason."""
    try:
        load_torch_npu()
    except (ImportError, OSError, RuntimeError) as error:
        return KernelReport(missing=dict.fromkeys(_OPS, f"torch-npu does not load: {error}"))
    family = family_of_soc(int(torch.get_device_module("npu").get_soc_version()))
    missing = dict(_missing(family))
    version = torch_npu_version()
    loaded = (name for name in _OPS if name not in missing)
    return KernelReport(
        loaded=tuple(f"{name} {version}".strip() for name in loaded), missing=missing
    )


def settle_device() -> None:
    """Settings of a process, once its device is set.

    Ops come compiled: compiling each new shape at run time, the other mode, takes seconds per
    shape. Tensors may keep the format that the vendor's ops gave them, which packed weights need.
    """
    npu: Any = torch.get_device_module("npu")
    npu.set_compile_mode(jit_compile=False)
    npu.config.allow_internal_format = True


def _missing(family: str) -> Iterator[tuple[str, str]]:
    is_310p = family == "310p"
    for name, ops in _OPS.items():
        absent = [op for namespace, op in ops if not hasattr(getattr(torch.ops, namespace), op)]
        if name == FUSED_INFER and is_310p:
            yield name, _NOT_ON_310P
        elif name == PAGED_NZ and not is_310p:
            yield name, _ONLY_ON_310P.format(family=family)
        elif absent and name == PAGED_NZ:
            yield name, _NO_ATB.format(ops=", ".join(absent))
        elif absent:
            yield name, f"torch-npu {torch_npu_version()} has no {', '.join(absent)}"
