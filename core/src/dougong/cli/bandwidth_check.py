"""Memory bandwidth of a device, measured in a short-lived process: measuring opens a context."""

from __future__ import annotations

from dougong.platforms import LoadedPlatform, check_runtime
from dougong.platforms.device_questions import answer_about_device, ask_about_device

_TIMEOUT_S = 120.0


def ask_bandwidth(loaded: LoadedPlatform, index: int) -> float:
    """Bytes per second of device ``index``, read and write together.

    Raises:
        DeviceError: The device failed.
        PluginError: The platform's runtime did.
    """
    what = f"measuring the memory bandwidth of device {index}"
    found = ask_about_device(loaded, index, module=__name__, what=what, timeout_s=_TIMEOUT_S)
    return float(found)


def _measure(loaded: LoadedPlatform, index: int) -> float:
    from dougong.reference.bandwidth import measure_bandwidth

    return measure_bandwidth(check_runtime(loaded.platform, loaded.selection.row), index)


if __name__ == "__main__":
    answer_about_device(_measure)
