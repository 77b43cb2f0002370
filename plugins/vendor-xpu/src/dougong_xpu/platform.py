"""The platform: identity, capabilities, runtime, and which class does what.

Imported only when this platform is chosen, and then in the planning parent too; so torch and the
vendor's libraries are imported inside the methods that need them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from dougong.contracts import (
    Claims,
    ConfigChange,
    ConfigView,
    DeviceFacts,
    DeviceRuntime,
    Fault,
    KernelReport,
    Platform,
    read_claims,
    read_families,
)

from dougong_xpu import driver
from dougong_xpu.errors import classify
from dougong_xpu.providers import (
    EXTENSION,
    KERNELS,
    extension_refusal,
    kernels_refusal,
    version_of,
)

_LIBRARIES = ("_C", "_moe_C", "_vllm_fa2_C", "_xpu_C")
_PACKAGE = "dougong_xpu"


class XpuPlatform(Platform):
    """Intel GPUs, on ``torch.xpu``."""

    name: ClassVar[str] = "xpu"
    device_type: ClassVar[str] = "xpu"
    dispatch_key: ClassVar[str] = "XPU"
    dist_backend: ClassVar[str] = "xccl"
    visible_devices_env: ClassVar[str] = driver.VISIBLE_DEVICES_ENV

    def claims(self, arch: str) -> Claims:
        """What a family can do, from the data file."""
        return read_claims(_PACKAGE, arch)

    def families(self) -> Sequence[str]:
        """Those of the data file."""
        return read_families(_PACKAGE)

    def facts(self, device_index: int) -> DeviceFacts:
        """As torch tells; this starts the vendor's runtime, so the core asks in a child.

        Raises:
            DeviceError: There is no such device, or torch counts otherwise than the kernel.
        """
        from dougong_xpu.runtime import properties_family

        runtime = self.runtime
        runtime.set_device(device_index)
        info = driver.list_devices()[device_index]
        properties = _properties(device_index)
        memory = runtime.memory_info(device_index)
        return DeviceFacts(
            device_index=device_index,
            name=str(properties.name),
            arch=properties_family(properties) or info.arch,
            memory_total_bytes=memory.total_bytes,
            memory_free_bytes=memory.free_bytes,
            is_integrated=info.is_integrated,
            num_compute_units=int(getattr(properties, "max_compute_units", 0)),
            driver_version=str(getattr(properties, "driver_version", "")) or info.driver_version,
            runtime_version=version_of("torch"),
        )

    @cached_property
    def runtime(self) -> DeviceRuntime:
        """Every device call of the core."""
        from dougong_xpu.runtime import XpuRuntime

        return XpuRuntime()

    def import_kernels(self) -> KernelReport:
        """Load ``vllm-xpu-kernels``; say of the older extension why it is not used.

        Both bring a SYCL runtime of their own, so that only one is ever loaded: the older one where
        the other cannot be, and torch is old enough for it.
        """
        missing = {KERNELS: kernels_refusal(), EXTENSION: extension_refusal()}
        loaded = []
        if not missing[KERNELS]:
            missing[KERNELS] = _import_libraries()
        if not missing[KERNELS]:
            loaded.append(f"{KERNELS} {version_of(KERNELS)}")
            missing[EXTENSION] = missing[EXTENSION] or f"{KERNELS} is used in its place"
        elif not missing[EXTENSION]:
            from dougong_xpu import ipex_library

            missing[EXTENSION] = ipex_library.load()
            if not missing[EXTENSION]:
                loaded.append(f"{EXTENSION} {version_of(EXTENSION)}")
        return KernelReport(tuple(loaded), {name: why for name, why in missing.items() if why})

    def check_and_update_config(self, config: ConfigView) -> Sequence[ConfigChange]:
        """No capture: graphs of this device are experimental, and nothing here uses them."""
        if config.enforce_eager is not None:
            return ()
        return (ConfigChange("enforce_eager", True, "graphs of Intel GPUs are not used"),)

    def get_attn_backends(self) -> Mapping[str, str]:
        """Preferred first. The reference stays: where the others say no, it serves, and says so."""
        return {
            "xpu/flash": "dougong_xpu.attention:XpuFlashBackend",
            "xpu/ipex_paged": "dougong_xpu.ipex_attention:IpexPagedBackend",
            "reference/torch": "dougong.reference:ReferenceAttentionBackend",
        }

    def get_device_communicator_cls(self) -> str:
        """Collectives between devices."""
        return "dougong_xpu.communicator:XpuCommunicator"

    def classify_error(self, exc: BaseException) -> Fault | None:
        """Name the runtime's errors in the core's terms."""
        return classify(exc)


def _import_libraries() -> str:
    """Load what registers the ops; why it could not be, or nothing."""
    for name in _LIBRARIES:
        try:
            importlib.import_module(f"vllm_xpu_kernels.{name}")
        except (ImportError, OSError, RuntimeError) as error:
            return (
                f"{version_of(KERNELS)} is installed and vllm_xpu_kernels.{name} cannot be loaded "
                f"({error}); it needs the torch and oneAPI runtime that it was built for"
            )
    return ""


def _properties(device_index: int) -> Any:
    import torch

    return torch.xpu.get_device_properties(device_index)
