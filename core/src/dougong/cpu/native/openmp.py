"""The OpenMP runtime PyTorch already runs on, so that the kernels share its threads."""

from __future__ import annotations

import re
from pathlib import Path

import torch

_RUNTIME = re.compile(r"lib(gomp|omp|iomp5)\b.*\.so")


def loaded_runtimes() -> tuple[Path, ...]:
    """OpenMP runtimes mapped into this process, each file once, in order of their paths."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return ()
    files = {line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count("/")}
    return tuple(sorted(Path(file) for file in files if _RUNTIME.search(Path(file).name)))


def runtime_of_torch() -> Path | None:
    """The runtime file PyTorch uses; ``None`` where that is not certain."""
    found = loaded_runtimes()
    if len(found) > 1:  # another library brought its own: PyTorch's lies beside PyTorch
        home = Path(torch.__file__).resolve().parent
        found = tuple(path for path in found if home in path.resolve().parents)
    return found[0] if len(found) == 1 else None
