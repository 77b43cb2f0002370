"""Loads the compiled kernels."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import torch

from dougong.contracts import UnsupportedError
from dougong.cpu.native import abi
from dougong.cpu.native.build import NotBuilt, build_kernels

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NativeLibrary:
    """The compiled kernels, with the number of threads that what is bound to them may use."""

    c: ctypes.CDLL
    level: str  # one of `levels.LEVELS`
    path: Path
    num_threads: int
    note: str = ""  # why it is not a better level; see `build.BuiltLibrary`


def load_native_library(
    *,
    cache_dir: Path | None = None,
    compiler: str | None = None,
    features: AbstractSet[str] | None = None,
    level: str | None = None,
    num_threads: int | None = None,
) -> NativeLibrary | NotBuilt:
    """Find or build the kernels (see `build.build_kernels`) and load them. Never raises.

    Args:
        cache_dir: As for `build.build_kernels`, like ``compiler``, ``features``, ``level``.
        compiler: Name or path of a C++ compiler.
        features: What the processor can do.
        level: Instruction level to insist on.
        num_threads: Threads for large work; ``None``: as many as PyTorch uses now. A number that
            differs from PyTorch's makes the shared OpenMP runtime rebuild its team at each change.
    """
    threads = num_threads or torch.get_num_threads()
    built = build_kernels(cache_dir=cache_dir, compiler=compiler, features=features, level=level)
    if isinstance(built, NotBuilt):
        return built
    try:
        c = abi.load_library(str(built.path))
    except (OSError, AttributeError) as error:
        # The file is what the compiler made, so it stays: made anew, it would be the same again.
        return NotBuilt(f"the compiled kernels could not be loaded: {error} ({built.path})")
    if built.note:
        _log.warning("%s", built.note)
    return NativeLibrary(c, built.level, built.path, threads, built.note)


def dtype_code(dtype: torch.dtype, what: str) -> int:
    """The kernels' number for a dtype.

    Raises:
        UnsupportedError: Neither float32 nor bfloat16.
    """
    code = abi.DTYPE_CODES.get(dtype)
    if code is None:
        raise UnsupportedError(
            f"the native kernels take float32 and bfloat16; the {what} is {dtype}"
        )
    return code


def advise_huge_pages(library: NativeLibrary, tensor: torch.Tensor) -> None:
    """Ask for huge pages under a contiguous tensor that nothing has been written to yet.

    For weights and caches, which every step streams through: fewer address translations. Costs
    nothing where the system has no huge pages; no effect below 2 MiB.
    """
    library.c.dg_advise_huge_pages(tensor.data_ptr(), tensor.numel() * tensor.element_size())
