"""The platform: identity, capabilities, runtime, and which class does what.

Imported only when this platform is chosen, and then in the planning parent too. So it imports
without torch and without ROCm; both are imported inside the methods that need them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from dougong.contracts import (
    Claims,
    ConfigChange,
    ConfigView,
    DeviceError,
    DeviceFacts,
    DeviceRuntime,
    Fault,
    KernelReport,
    Platform,
    read_claims,
    read_families,
)

from dougong_rocm import driver
from dougong_rocm.driver import Machine
from dougong_rocm.errors import classify
from dougong_rocm.installation import rocm_version, torch_build, version_of

_PACKAGE = "dougong_rocm"
_TRITON = "triton-kernels"
_TRITON_DISTRIBUTION = "dougong-triton-kernels"
_BLOCK_SIZES = {"rocm/aiter": 128, "rocm/aiter-unified": 64}


class RocmPlatform(Platform):
    """AMD GPUs: HIP under ``torch.cuda``, AITER's kernels where they are, Triton's elsewhere."""

    name: ClassVar[str] = "rocm"
    device_type: ClassVar[str] = "cuda"  # what a torch that was built for HIP calls them
    dispatch_key: ClassVar[str] = "CUDA"
    dist_backend: ClassVar[str] = "nccl"  # RCCL, by the name that torch has for it
    visible_devices_env: ClassVar[str] = driver.VISIBLE_DEVICES_ENV
    _machine: ClassVar[Machine] = Machine()

    def claims(self, arch: str) -> Claims:
        """What a family can do, from the data file."""
        return read_claims(_PACKAGE, arch)

    def families(self) -> Sequence[str]:
        """Those of the data file."""
        return read_families(_PACKAGE)

    def facts(self, device_index: int) -> DeviceFacts:
        """What the driver tells of one device."""
        gpus = self._machine.gpus()
        if not 0 <= device_index < len(gpus):
            raise DeviceError(
                f"rocm has {len(gpus)} devices here; index {device_index} was asked for",
                device_index=device_index,
            )
        gpu, info = gpus[device_index], self._machine.list_devices()[device_index]
        used = gpu.memory_used_bytes
        runtime = torch_build().runtime_version
        return DeviceFacts(
            device_index=device_index,
            name=info.name,
            arch=gpu.arch,
            memory_total_bytes=gpu.memory_bytes,
            memory_free_bytes=None if used is None else max(0, gpu.memory_bytes - used),
            is_integrated=gpu.is_integrated,
            num_compute_units=gpu.num_compute_units,
            driver_version=info.driver_version,
            runtime_version=runtime or rocm_version(self._machine.root, self._machine.environment),
        )

    @property
    def facts_open_context(self) -> bool:
        """The driver's list is read; no device is opened."""
        return False

    @cached_property
    def runtime(self) -> DeviceRuntime:
        """Every device call of the core; imports torch.

        Raises:
            ConfigError: This torch was not built for HIP.
        """
        from dougong_rocm.runtime import RocmRuntime

        return RocmRuntime(self._machine)

    def import_kernels(self) -> KernelReport:
        """AITER call by call, and the Triton kernels."""
        from dougong_rocm import library

        archs = [gpu.arch for gpu in self._machine.gpus()]
        aiter = library.bind(archs)
        missing = dict(aiter.missing)
        loaded = list(aiter.loaded)
        if obstacle := self._triton_obstacle(archs):
            missing[_TRITON] = obstacle
        else:
            loaded.append(f"{_TRITON} {version_of(_TRITON_DISTRIBUTION) or 'unknown'}")
        return KernelReport(loaded=tuple(loaded), missing=missing)

    def _triton_obstacle(self, archs: Sequence[str]) -> str:
        """Why the Triton kernels cannot run; empty: they can."""
        if strange := sorted(arch for arch in set(archs) if not self.claims(arch).triton):
            return f"they were not compiled for {', '.join(strange)}, and are not tried there"
        from dougong_triton_kernels.availability import missing_triton

        return missing_triton() or ""

    def check_and_update_config(self, config: ConfigView) -> Sequence[ConfigChange]:
        """The block size of a backend that somebody named, where nobody named another."""
        size = _BLOCK_SIZES.get(config.attention_backend or "")
        if size is None or config.block_size is not None:
            return ()
        reason = f"{config.attention_backend} reads blocks of {size} tokens"
        return (ConfigChange("block_size", size, reason),)

    def get_attn_backends(self) -> Mapping[str, str]:
        """Preferred first; each names what its kernels need of a family."""
        return {
            "rocm/aiter": "dougong_rocm.attention_aiter:AiterAttentionBackend",
            "rocm/aiter-unified": "dougong_rocm.attention_aiter:AiterUnifiedBackend",
            "rocm/triton": "dougong_rocm.attention_triton:TritonAttentionBackend",
            "reference/torch": "dougong.reference:ReferenceAttentionBackend",
        }

    def get_device_communicator_cls(self) -> str:
        """RCCL."""
        return "dougong_rocm.communicator:RcclCommunicator"

    def get_graph_runner_cls(self) -> str | None:
        """HIP graphs."""
        return "dougong_rocm.graph:HipGraphRunner"

    def classify_error(self, exc: BaseException) -> Fault | None:
        """HIP's, torch's and RCCL's errors in the core's terms."""
        return classify(exc)
