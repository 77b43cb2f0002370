"""What of the vendor's software is installed, told without importing any of it.

A torch that was built for another vendor's GPUs answers to ``torch.cuda`` as well; it must not be
taken for this one. Importing it to find out would cost every command seconds, so its distribution
is asked instead.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_HIP_LIBRARY = "lib/libtorch_hip.so"
_RUNTIME_VERSION = ".info/version"
_HOME_VARIABLES = ("ROCM_HOME", "ROCM_PATH", "HIP_PATH")
_DEFAULT_HOME = "opt/rocm"
INSTALL_TORCH = (
    "install torch from https://download.pytorch.org/whl/rocm<VERSION>, of the ROCm version that "
    "the driver serves"
)


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """The torch that this environment would import.

    Attributes:
        version: Empty: there is none.
        is_for_hip: It was built for this vendor's GPUs.
    """

    version: str
    is_for_hip: bool

    @property
    def runtime_version(self) -> str:
        """Of the ROCm that it was built with; empty: it does not say."""
        found = re.search(r"\+rocm(\d+(?:\.\d+)*)", self.version)
        return found[1] if found else ""


def torch_build() -> TorchBuild:
    """By the distribution's version, or by the library that lies beside the package."""
    found = version_of("torch")
    return TorchBuild(found, "+rocm" in found or _has_hip_library())


def rocm_home(root: Path, environment: Mapping[str, str]) -> Path:
    """Where ROCm is installed, if it is."""
    for name in _HOME_VARIABLES:
        if value := environment.get(name):
            return Path(value)
    return root / _DEFAULT_HOME


def rocm_version(root: Path, environment: Mapping[str, str]) -> str:
    """Of the installed ROCm; empty: none, as where torch brings its own libraries."""
    try:
        return (rocm_home(root, environment) / _RUNTIME_VERSION).read_text("utf-8").strip()
    except OSError:
        return ""


def version_of(distribution: str) -> str:
    """Of an installed distribution; empty: it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _has_hip_library() -> bool:
    spec = importlib.util.find_spec("torch")  # looks for it; imports nothing
    folders = () if spec is None else spec.submodule_search_locations or ()
    return any((Path(folder) / _HIP_LIBRARY).is_file() for folder in folders)
