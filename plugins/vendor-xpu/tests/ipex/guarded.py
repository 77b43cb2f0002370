"""Tensors between pages that nobody may touch: an access outside ends the process, every time.

In ordinary memory a write outside a tensor may hit another one and go unnoticed.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence

import torch

GUARD_BYTES = 8 << 20
"""Inaccessible, before and behind."""


def guarded_zeros(shape: Sequence[int]) -> torch.Tensor:
    """float32 zeros; the memory is never given back, so it is for processes that end soon.

    Raises:
        ValueError: The size is not one of whole pages, so that the end would not lie at a guard.
        OSError: The kernel refuses the guards.
    """
    count = math.prod(shape)
    size = count * torch.float32.itemsize
    if size % mmap.PAGESIZE:
        raise ValueError(f"{size} bytes are no whole pages of {mmap.PAGESIZE}")
    memory = mmap.mmap(-1, GUARD_BYTES + size + GUARD_BYTES)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    library = ctypes.CDLL(None, use_errno=True)
    for guard in (start, start + GUARD_BYTES + size):
        if library.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(GUARD_BYTES), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    tensor = torch.frombuffer(memory, dtype=torch.float32, count=count, offset=GUARD_BYTES)
    return tensor.view(*shape)
