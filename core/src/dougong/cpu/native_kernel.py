"""What every native kernel needs."""

from __future__ import annotations

from dougong.cpu import native
from dougong.cpu.native_library import get_library
from dougong.cpu.platform import NATIVE_LIBRARY
from dougong.ops import Needs

NATIVE_DTYPES = ("float32", "bfloat16")
NATIVE_KERNEL = Needs(dtype=NATIVE_DTYPES, library=NATIVE_LIBRARY)


def loaded_library() -> native.NativeLibrary:
    """The library; a kernel whose condition asked for it is made only where it is there."""
    library = get_library()
    assert not isinstance(library, native.NotBuilt), "the condition asked for the library"
    return library
