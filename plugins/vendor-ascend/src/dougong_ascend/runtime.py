"""Every device call that the core makes outside tensor arithmetic."""

from __future__ import annotations

import importlib
from typing import Any

from dougong.reference import TorchDeviceRuntime

from dougong_ascend.library import load_torch_npu


class AscendRuntime(TorchDeviceRuntime):
    """`TorchDeviceRuntime` over ``torch.npu``, which has its functions under the usual names.

    Two things differ. torch may have been told not to load torch-npu by itself, so it is imported
    here. And a query (a count, a name, memory) before `set_device` fixes which devices
    ``ASCEND_RT_VISIBLE_DEVICES`` leaves to this process, for good: so none is made here, and the
    parent, which plans, reads facts in a child.

    It is a `Profiler`, too: torch's own sees nothing of this device.
    """

    def __init__(self) -> None:
        load_torch_npu()
        super().__init__("npu", pin_memory=True)
        self._profile: Any = None

    def device_uuid(self, device_index: int) -> str:
        """None: the properties of a device have one only with some drivers, and other tools of the
        vendor do not show it."""
        return ""

    def synchronize(self) -> None:
        """The current device, not a given one: torch-npu would change devices to and fro."""
        self.module.synchronize()

    def start(self, folder: str) -> None:
        """Record host and device into ``folder``, in the vendor's format."""
        vendor: Any = importlib.import_module("torch_npu.profiler")
        activities = [vendor.ProfilerActivity.CPU, vendor.ProfilerActivity.NPU]
        written = vendor.tensorboard_trace_handler(folder)
        self._profile = vendor.profile(activities=activities, on_trace_ready=written)
        self._profile.start()

    def stop(self) -> None:
        """End and write the record; nothing where none was begun."""
        if self._profile is not None:
            self._profile.stop()
            self._profile = None
