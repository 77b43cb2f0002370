"""The platform: identity, capabilities, runtime, and which class does what.

Imported in the planning parent too, on machines with nothing of the vendor's. So it imports neither
torch nor torch-npu; both are imported inside the methods that need them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

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

from dougong_ascend.driver import VISIBLE_DEVICES_ENV
from dougong_ascend.errors import classify
from dougong_ascend.families import family_of_soc
from dougong_ascend.software import driver_version

_PACKAGE = "dougong_ascend"
LAUNCH_BLOCKING_ENV = "ASCEND_LAUNCH_BLOCKING"


class AscendPlatform(Platform):
    """Ascend NPUs over torch-npu."""

    name: ClassVar[str] = "ascend"
    device_type: ClassVar[str] = "npu"
    dispatch_key: ClassVar[str] = "PrivateUse1"
    dist_backend: ClassVar[str] = "hccl"
    visible_devices_env: ClassVar[str] = VISIBLE_DEVICES_ENV

    def families(self) -> Sequence[str]:
        """Those of the data file."""
        return read_families(_PACKAGE)

    def claims(self, arch: str) -> Claims:
        """What a family can do, from the data file."""
        return read_claims(_PACKAGE, arch)

    def facts(self, device_index: int) -> DeviceFacts:
        """What one device measures. Opens it: asked in a child, as `facts_open_context` says."""
        runtime = self.runtime
        npu: Any = self._module()
        count = runtime.device_count()
        if not 0 <= device_index < count:
            raise DeviceError(
                f"torch-npu finds {count} devices here; index {device_index} was asked for",
                device_index=device_index,
            )
        runtime.set_device(device_index)
        memory = runtime.memory_info(device_index)
        properties = npu.get_device_properties(device_index)
        return DeviceFacts(
            device_index=device_index,
            name=runtime.device_name(device_index),
            arch=family_of_soc(int(npu.get_soc_version())),
            memory_total_bytes=memory.total_bytes,
            memory_free_bytes=memory.free_bytes,
            num_compute_units=int(getattr(properties, "cube_core_num", 0)),
            driver_version=driver_version(),
            runtime_version=_toolkit_version(npu),
        )

    @property
    def facts_open_context(self) -> bool:
        """They do: even a query of memory initialises the runtime, once for the whole process."""
        return True

    @cached_property
    def runtime(self) -> DeviceRuntime:
        """Every device call of the core. Imports torch-npu."""
        from dougong_ascend.runtime import AscendRuntime

        return AscendRuntime()

    def import_kernels(self) -> KernelReport:
        """Settle the process and see which ops there are; in every worker, after the device is set.

        What is missing is reported, never raised: what needs it is passed over with this reason.
        """
        from dougong_ascend.library import report_kernels, settle_device

        report = report_kernels()
        if report.loaded:
            settle_device()
        return report

    def check_and_update_config(self, config: ConfigView) -> Sequence[ConfigChange]:
        """What this device needs, as data. Block size and dtypes are among its claims."""
        if os.environ.get(LAUNCH_BLOCKING_ENV) == "1" and config.enforce_eager is None:
            reason = f"nothing can be captured with {LAUNCH_BLOCKING_ENV}=1"
            return (ConfigChange("enforce_eager", True, reason),)
        return ()

    def get_attn_backends(self) -> Mapping[str, str]:
        """The vendor's; then plain torch, which serves what they do not, and says so.

        Which of the two a chip has is told by its claims, and in a worker by the libraries that
        `import_kernels` finds.
        """
        return {
            "ascend/fused_infer": f"{_PACKAGE}.attention:FusedInferBackend",
            "ascend/paged_nz": f"{_PACKAGE}.attention_nz:PagedNZBackend",
            "reference/torch": "dougong.reference:ReferenceAttentionBackend",
        }

    def get_device_communicator_cls(self) -> str:
        """HCCL."""
        return f"{_PACKAGE}.communicator:AscendCommunicator"

    def get_graph_runner_cls(self) -> str | None:
        """Graphs of the runtime, around attention."""
        return f"{_PACKAGE}.graph:AscendGraphRunner"

    def classify_error(self, exc: BaseException) -> Fault | None:
        """Name the vendor's errors in the core's terms."""
        return classify(exc)

    def _module(self) -> Any:
        import torch

        return torch.get_device_module(self.device_type)


def _toolkit_version(npu: Any) -> str:
    """Of CANN; empty where this torch-npu cannot tell."""
    utils = getattr(npu, "utils", None)
    ask = getattr(utils, "get_cann_version", None)
    try:
        return str(ask("CANN")) if ask is not None else ""
    except RuntimeError:  # an installation that lacks the file that states it
        return ""
