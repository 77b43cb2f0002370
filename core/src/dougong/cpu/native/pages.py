"""Memory that is not needed any more, given back to the system while its owner still lives."""

from __future__ import annotations

import ctypes
import mmap
from functools import cache

import torch

_DONT_NEED = getattr(mmap, "MADV_DONTNEED", 4)


def discard(tensor: torch.Tensor) -> None:
    """Give the whole pages inside ``tensor`` back; its contents are lost, its address stays valid.

    Args:
        tensor: Contiguous, in ordinary host memory that nobody reads before writing it again.
    """
    size = mmap.PAGESIZE
    first = -(-tensor.data_ptr() // size) * size
    last = (tensor.data_ptr() + tensor.nbytes) // size * size
    if last > first:
        _libc().madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _DONT_NEED)


@cache
def _libc() -> ctypes.CDLL:
    """Made once: each one makes a class, which cost a fifth of the time that packing took."""
    return ctypes.CDLL(None)
