"""The CPU as a platform."""

from __future__ import annotations

import platform as machine
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import ClassVar

from dougong.contracts import (
    Claims,
    ConfigChange,
    ConfigView,
    DeviceFacts,
    DeviceRuntime,
    Fault,
    KernelReport,
    OutOfDeviceMemory,
    Platform,
)
from dougong.cpu.caches import read_caches
from dougong.cpu.features import detect_features
from dougong.cpu.memory import read_memory
from dougong.cpu.plugin import cpu_name, num_processors

NATIVE_LIBRARY = "dougong-cpu-native"


class CpuPlatform(Platform):
    """All processors of this host as one device."""

    name: ClassVar[str] = "cpu"
    device_type: ClassVar[str] = "cpu"
    dispatch_key: ClassVar[str] = "CPU"
    dist_backend: ClassVar[str] = "gloo"
    visible_devices_env: ClassVar[str] = ""

    def claims(self, arch: str) -> Claims:
        """Features are read from this machine; another family gets what holds everywhere."""
        is_here = arch == machine.machine()
        features = detect_features() if is_here else frozenset()
        has_fast_bf16 = any(feature.startswith("mm.bf16.") for feature in features)
        wide = ("bfloat16", "float32") if has_fast_bf16 else ("float32", "bfloat16")
        return Claims(
            arch=arch,
            is_generic=not is_here,
            dtypes=(*wide, "float16"),
            kv_dtypes=(*wide, "float16"),
            collective_dtypes=("float32", "bfloat16", "float16"),
            kv_block_sizes=(16, 32, 64, 128),
            features=features | _numerics(features),
            limits=read_caches() if is_here else {},
            compile_backends=("inductor",),
        )

    def families(self) -> Sequence[str]:
        """This machine's: features are read and not listed."""
        return (machine.machine(),)

    def facts(self, device_index: int) -> DeviceFacts:
        """From the kernel, whose version stands for the driver's, as torch's does for the
        runtime's; opens nothing."""
        memory = read_memory()
        return DeviceFacts(
            device_index=device_index,
            name=cpu_name(),
            arch=machine.machine(),
            memory_total_bytes=memory.total_bytes,
            memory_free_bytes=memory.free_bytes,
            memory_quota_bytes=memory.quota_bytes,
            memory_quota_source=memory.quota_source,
            is_integrated=True,
            num_compute_units=num_processors(),
            driver_version=machine.release(),
            runtime_version=_torch_version(),
        )

    @cached_property
    def runtime(self) -> DeviceRuntime:
        """The host's; torch is imported here and not before."""
        from dougong.cpu.runtime import CpuDeviceRuntime

        return CpuDeviceRuntime()

    @property
    def facts_open_context(self) -> bool:
        """Reading them opens nothing."""
        return False

    def import_kernels(self) -> KernelReport:
        """Build or load the native kernels."""
        from dougong.cpu.native import NotBuilt
        from dougong.cpu.native_library import get_library

        library = get_library()
        if isinstance(library, NotBuilt):
            return KernelReport(missing={NATIVE_LIBRARY: library.reason})
        better = {f"{NATIVE_LIBRARY} above {library.level}": library.note} if library.note else {}
        return KernelReport(loaded=(f"{NATIVE_LIBRARY} {library.level}",), missing=better)

    def check_and_update_config(self, config: ConfigView) -> Sequence[ConfigChange]:
        """The memory is shared with everything else on the host."""
        if config.device_memory_utilization is not None:
            return ()
        return (
            ConfigChange(
                "device_memory_utilization", 0.5, "the memory is shared with the rest of the host"
            ),
        )

    def get_attn_backends(self) -> Mapping[str, str]:
        """The native one, then plain torch."""
        return {
            "cpu/native": "dougong.cpu.attention:NativeAttentionBackend",
            "reference/torch": "dougong.reference:ReferenceAttentionBackend",
        }

    def get_worker_cls(self) -> str:
        """Knows the size of a step without running one."""
        return "dougong.cpu.worker:CpuWorker"

    def classify_error(self, exc: BaseException) -> Fault | None:
        """Running out of memory is the one thing a host reports."""
        is_torch_oom = isinstance(exc, RuntimeError) and "can't allocate memory" in str(exc)
        if isinstance(exc, MemoryError) or is_torch_oom:
            return Fault(OutOfDeviceMemory, f"the host has no memory left: {exc}", 0)
        return None


def _numerics(features: frozenset[str]) -> frozenset[str]:
    """What the native kernels' results have in common, by the level that these features give.

    A row in float32 is the same in every batch; the instruction that rounds to bfloat16 takes
    subnormal numbers as zero.
    """
    invariant = {"batch_invariant.float32"} if "isa.avx2" in features else set()
    flushes = {"subnormals.flush.bfloat16"} if "mm.bf16.avx512" in features else set()
    return frozenset(invariant | flushes)


def _torch_version() -> str:
    """Of the installed torch, which computes here; not imported for that."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""
