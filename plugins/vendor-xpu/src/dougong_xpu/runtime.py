"""Every device call that the core makes outside tensor arithmetic, over ``torch.xpu``."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from dougong.contracts import DeviceError, DeviceInfo, MemoryInfo
from dougong.reference import TorchDeviceRuntime

from dougong_xpu.driver import list_devices
from dougong_xpu.families import family_of


class XpuRuntime(TorchDeviceRuntime):
    """`TorchDeviceRuntime` over ``torch.xpu``, but for what that module tells differently.

    Which devices there are comes from the kernel's lists, so that asking opens no context: any
    question to ``torch.xpu``, even how many devices there are, starts the vendor's runtime and
    opens one for all of them. `set_device` compares both and refuses where they differ.
    """

    def __init__(self) -> None:
        super().__init__("xpu", pin_memory=True)

    def device_count(self) -> int:
        """As the kernel lists them, after the mask."""
        return len(list_devices())

    def device_name(self, device_index: int) -> str:
        """The family's; the driver's own name is in `Platform.facts`."""
        return _device(device_index).name

    def device_uuid(self, device_index: int) -> str:
        """The PCI address, and the tile where a tile is a device."""
        return _device(device_index).uuid

    def memory_info(self, device_index: int) -> MemoryInfo:
        """As ``vllm-xpu-kernels`` asks Level Zero, where it is loaded; else as torch does.

        Torch cannot tell the free memory of every device; the library can on more of them.

        Raises:
            DeviceError: Neither tells.
        """
        if hasattr(torch.ops._C_cache_ops, "getMemoryInfo"):
            free, total = torch.ops._C_cache_ops.getMemoryInfo(device_index)
            if 0 < free <= total:  # it answers -1 or 0 where the driver does not tell
                return MemoryInfo(int(free), int(total))
        try:
            return super().memory_info(device_index)
        except RuntimeError as exc:
            raise DeviceError(
                f"the driver does not tell how much memory of xpu:{device_index} is free ({exc}); "
                "say how much may be used with --num-kv-blocks",
                device_index=device_index,
            ) from exc

    def set_device(self, device_index: int) -> None:
        """Start the vendor's runtime, see that it counts as the kernel does, and open the device.

        Raises:
            DeviceError: There is no such device, or the runtime counts otherwise, so that the index
                may be another one.
        """
        devices = list_devices()
        count = int(self.module.device_count())
        if count != len(devices):
            raise DeviceError(
                f"the kernel lists {len(devices)} devices here and torch.xpu {count}, so it is not "
                f"known which one {device_index} is; look at the driver's installation, and at "
                "ZE_AFFINITY_MASK, ZE_FLAT_DEVICE_HIERARCHY and ONEAPI_DEVICE_SELECTOR",
                device_index=device_index,
            )
        meant = _device(device_index).arch
        properties = self.module.get_device_properties(device_index)
        found = properties_family(properties)
        if found and found != meant:
            raise DeviceError(
                f"device {device_index} should be of family {meant}, and torch.xpu has "
                f"{properties.name} there; set ZE_ENABLE_PCI_ID_DEVICE_ORDER=1",
                device_index=device_index,
            )
        super().set_device(device_index)

    def inference_mode(self) -> AbstractContextManager[None]:
        """No gradients, and not torch's inference mode, which vLLM does not use on this device
        either."""
        return torch.no_grad()


def properties_family(properties: Any) -> str:
    """Family of a device by what torch tells of it; empty: torch does not tell the PCI id."""
    device_id = getattr(properties, "device_id", None)
    return "" if device_id is None else family_of(int(device_id))


def _device(device_index: int) -> DeviceInfo:
    devices = list_devices()
    if not 0 <= device_index < len(devices):
        raise DeviceError(
            f"xpu has {len(devices)} devices here; index {device_index} was asked for",
            device_index=device_index,
        )
    return devices[device_index]
