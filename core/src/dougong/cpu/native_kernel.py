"""What every native kernel needs."""

from __future__ import annotations

from typing import NoReturn

import torch

from dougong.cpu import native
from dougong.cpu.native_library import get_library
from dougong.cpu.platform import NATIVE_LIBRARY
from dougong.ops import Needs, OneOf

NATIVE_DTYPES = ("float32", "bfloat16")
NATIVE_KERNEL = Needs(dtype=NATIVE_DTYPES, library=NATIVE_LIBRARY)
WEIGHT_FORMATS = OneOf(*NATIVE_DTYPES)
WEIGHTED_KERNEL = Needs(dtype=NATIVE_DTYPES, library=NATIVE_LIBRARY, weight_format=WEIGHT_FORMATS)
"""Of kernels for ops with a weight, which may have another dtype than the engine computes in."""


def loaded_library() -> native.NativeLibrary:
    """The library; a kernel whose condition asked for it is made only where it is there."""
    library = get_library()
    assert not isinstance(library, native.NotBuilt), "the condition asked for the library"
    return library


def refuse(dtype: torch.dtype, *tensors: torch.Tensor) -> NoReturn:
    """A kernel was made for ``dtype`` and would read memory that is not these tensors'.

    Raises:
        TypeError: Always.
    """
    given = ", ".join(dict.fromkeys(str(tensor.dtype) for tensor in tensors))
    raise TypeError(f"this kernel was made for tensors of {dtype} and was given {given}")
