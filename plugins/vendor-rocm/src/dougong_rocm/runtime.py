"""Every device call that the core makes outside tensor arithmetic: HIP behind ``torch.cuda``.

torch knows this vendor's GPUs as ``cuda``. What is asked before a device is set is answered from
the driver's list instead, since ``torch.cuda`` opens the runtime for it, and a process that forks
after that cannot use the device.
"""

from __future__ import annotations

import torch
from dougong.contracts import ConfigError, DeviceError, DeviceInfo, MemoryInfo
from dougong.reference import TorchDeviceRuntime

from dougong_rocm.driver import Machine
from dougong_rocm.installation import INSTALL_TORCH


class RocmRuntime(TorchDeviceRuntime):
    """`TorchDeviceRuntime` over ``torch.cuda``, where torch was built for HIP.

    Args:
        machine: Where the driver is looked for.

    Raises:
        ConfigError: This torch was built for another vendor's devices, or for none.
    """

    def __init__(self, machine: Machine | None = None) -> None:
        hip = getattr(torch.version, "hip", None)
        if hip is None:
            other = getattr(torch.version, "cuda", None)
            built = f"for CUDA {other}" if other else "without a device"
            raise ConfigError(
                f"platform rocm needs a torch that was built for HIP; torch {torch.__version__} is "
                f"built {built} (torch.version.hip is None): {INSTALL_TORCH}."
            )
        super().__init__("cuda", pin_memory=True)
        self._machine = machine or Machine()
        self._is_open = False

    def device_count(self) -> int:
        """As the driver lists them, under the masks."""
        return len(self._machine.list_devices())

    def device_name(self, device_index: int) -> str:
        """Of the product where the device is open, else of the family."""
        if self._is_open:
            return super().device_name(device_index)
        return self._info(device_index).name

    def device_uuid(self, device_index: int) -> str:
        """The driver's: torch gives the same digits in another form."""
        return self._info(device_index).uuid

    def memory_info(self, device_index: int) -> MemoryInfo:
        """As the driver counts, of all processes, until the device is open."""
        gpu = self._machine.gpus()[device_index]
        if self._is_open or not gpu.memory_bytes or gpu.memory_used_bytes is None:
            return super().memory_info(device_index)
        return MemoryInfo(max(0, gpu.memory_bytes - gpu.memory_used_bytes), gpu.memory_bytes)

    def set_device(self, device_index: int) -> None:
        """Open it, and see that HIP means the same device by this number as the driver's list.

        Raises:
            DeviceError: It means another: HIP may list unlike GPUs in an order of its own.
        """
        expected = self._info(device_index).arch
        super().set_device(device_index)
        found = str(self.module.get_device_properties(device_index).gcnArchName).partition(":")[0]
        if found != expected:
            raise DeviceError(
                f"HIP's device {device_index} is a {found}; by the driver's order it is a "
                f"{expected}. Name the devices in ROCR_VISIBLE_DEVICES by uuid.",
                device_index=device_index,
            )
        self._is_open = True

    def _info(self, device_index: int) -> DeviceInfo:
        devices = self._machine.list_devices()
        if not 0 <= device_index < len(devices):
            raise DeviceError(
                f"rocm has {len(devices)} devices here; index {device_index} was asked for",
                device_index=device_index,
            )
        return devices[device_index]
