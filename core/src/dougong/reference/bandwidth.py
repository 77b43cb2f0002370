"""Memory bandwidth of a device, measured by copying."""

from __future__ import annotations

import time

import torch

from dougong.contracts import DeviceRuntime

_LARGEST_BYTES = 512 * 2**20  # beyond any cache, and copied in milliseconds on a fast device
_SHARE_OF_FREE = 8
_NUM_RUNS = 7


def measure_bandwidth(runtime: DeviceRuntime, device_index: int) -> float:
    """Bytes per second that the device's memory moves, as steps that read weights will find it.

    One buffer is copied to another several times, by torch, and the fastest run counts; every byte
    counts twice, once read and once written. Opens a device context and needs up to a quarter of
    what memory is free, 1 GiB at most.

    Args:
        runtime: Of the platform.
        device_index: Within the platform.

    Returns:
        Bytes per second, read and write together.

    Raises:
        DeviceError: The device cannot be opened.
    """
    runtime.set_device(device_index)
    free_bytes = runtime.memory_info(device_index).free_bytes
    num_bytes = max(1, min(_LARGEST_BYTES, free_bytes // _SHARE_OF_FREE))
    device = runtime.torch_device(device_index)
    source = torch.ones(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = min(_copy_seconds(runtime, source, target) for _ in range(_NUM_RUNS))
    return 2 * num_bytes / seconds


def _copy_seconds(runtime: DeviceRuntime, source: torch.Tensor, target: torch.Tensor) -> float:
    runtime.synchronize()
    started = time.perf_counter()
    target.copy_(source)
    runtime.synchronize()
    return max(time.perf_counter() - started, 1e-9)
