"""The one copy of the native kernels in this process."""

from __future__ import annotations

from functools import cache

from dougong.cpu.native import NativeLibrary, NotBuilt, load_native_library


@cache
def get_library() -> NativeLibrary | NotBuilt:
    """Built or loaded at the first call; the answer stays. Code, not state: engines can share
    it."""
    return load_native_library()
