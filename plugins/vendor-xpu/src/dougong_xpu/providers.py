"""Which torch and which kernel libraries are installed, told without importing them.

Two libraries have kernels for this device: ``vllm-xpu-kernels``, which is developed, and
``intel-extension-for-pytorch``, whose development has ended. The second cannot be used together
with the core, since its last version needs a torch that is older than the core's oldest.
"""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

KERNELS = "vllm-xpu-kernels"
"""The library that conditions of kernels and backends name."""

EXTENSION = "intel-extension-for-pytorch"
"""The other one, where it is what is installed."""

OLDER_TORCH = "xpu.torch_before_2.9"
"""The feature that everything on the extension asks for; no family claims it, since the core needs
a newer torch."""

KERNELS_BOUND = (0, 1, 16)
"""Leading numbers of the versions whose signatures are called here."""

TORCH_INDEX = "https://download.pytorch.org/whl/xpu"

_OLDEST_TORCH = "2.10"  # where the core's own requirement cannot be read


def version_of(distribution: str) -> str:
    """Of an installed distribution; empty: not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def oldest_torch() -> str:
    """The oldest torch that the installed core takes, as its requirement says."""
    try:
        stated = requires("dougong") or []
    except PackageNotFoundError:
        stated = []
    for requirement in stated:
        if found := re.match(r"torch\b[^;]*?>=\s*([\d.]+)", requirement):
            return found[1]
    return _OLDEST_TORCH


def torch_problem() -> str:
    """Why the installed torch cannot use this device; empty: it can."""
    installed, oldest = version_of("torch"), oldest_torch()
    if not installed:
        return f"torch is not installed: pip install torch --index-url {TORCH_INDEX}"
    if _numbers(installed) < _numbers(oldest):
        beside = version_of(EXTENSION)
        also = f", beside {EXTENSION} {beside}" if beside else ""
        return (
            f"torch {installed} is installed{also}, and the core needs torch {oldest} or later: "
            f"pip install 'torch>={oldest}' --index-url {TORCH_INDEX}, and {KERNELS}"
        )
    if not _has_device_library():
        return (
            f"torch {installed} is built without support for Intel GPUs (it has no "
            f"libtorch_xpu.so): pip install torch --index-url {TORCH_INDEX}"
        )
    return ""


def kernels_refusal() -> str:
    """Why ``vllm-xpu-kernels`` is not used; empty: it may be imported."""
    installed = version_of(KERNELS)
    if not installed:
        return f"not installed; pip install '{KERNELS}=={_bound_text()}.*'"
    if _numbers(installed)[:3] != KERNELS_BOUND:
        return (
            f"{installed} is installed, and the calls made here are those of {_bound_text()}: "
            f"pip install '{KERNELS}=={_bound_text()}.*'"
        )
    return ""


def extension_refusal() -> str:
    """Why ``intel-extension-for-pytorch`` is not used; empty: it may be imported.

    Its version is that of the torch it was made for. It is never empty with a core that needs a
    newer torch than the last version was made for, which is every core so far.
    """
    installed, oldest = version_of(EXTENSION), oldest_torch()
    if not installed:
        return f"not installed, and of no use here: its development has ended; {KERNELS} is used"
    made_for = ".".join(map(str, _numbers(installed)[:2]))
    if _numbers(made_for) < _numbers(oldest):
        return (
            f"{installed} is installed, which needs torch {made_for}, and the core needs torch "
            f"{oldest} or later; its development has ended, so no later one will come: "
            f"pip uninstall {EXTENSION}, and install {KERNELS}"
        )
    return ""


def _bound_text() -> str:
    return ".".join(map(str, KERNELS_BOUND))


def _has_device_library() -> bool:
    spec = importlib.util.find_spec("torch")
    folders = spec.submodule_search_locations if spec else None
    return any((Path(folder) / "lib" / "libtorch_xpu.so").exists() for folder in folders or ())


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text.partition("+")[0])))
