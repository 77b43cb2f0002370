"""Every device call that the core makes outside tensor arithmetic."""

from __future__ import annotations

from dougong.reference import TorchDeviceRuntime

from dougong_sim import device


class SimRuntime(TorchDeviceRuntime):
    """`TorchDeviceRuntime` asks ``torch.sim``, as it asks any module that torch has for a device.

    That is all, because this one has the usual functions: where a vendor's differs, the method that
    calls it is overridden here. Made by whoever asks `SimPlatform.runtime` first, in a process that
    will use the device; so the library that registers the device is loaded here.
    """

    def __init__(self) -> None:
        device.load()
        super().__init__("sim", pin_memory=True)
