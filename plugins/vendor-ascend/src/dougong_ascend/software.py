"""What of the vendor's software is installed, found without loading any of it.

Loading would be too much: a process that only plans must not open a device, and with torch-npu
installed but its libraries missing not even ``import torch`` works.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

_LIBRARY = "libascendcl.so"
_USUAL_HOMES = (
    "/usr/local/Ascend/ascend-toolkit/latest",
    "/usr/local/Ascend/cann",
    "/usr/local/Ascend/nnrt/latest",
)
_DRIVER_VERSION = Path("/usr/local/Ascend/driver/version.info")
_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def missing_software(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """What is not there, one sentence each with what to do; empty: torch-npu can be imported."""
    return tuple(_missing(environ))


def torch_npu_version() -> str:
    """Of the installed distribution; empty: not installed, or not as one."""
    try:
        return version("torch-npu")
    except PackageNotFoundError:
        return ""


def driver_version(file: Path = _DRIVER_VERSION) -> str:
    """As the driver's own file states it; empty: it states none."""
    try:
        text = file.read_text("utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"^Version\s*=\s*(\S+)", text, re.MULTILINE)
    return found[1] if found else ""


def _missing(environ: Mapping[str, str]) -> Iterator[str]:
    has_torch_npu = find_spec("torch_npu") is not None
    if not has_torch_npu:
        yield (
            "torch-npu is not installed; pip install torch-npu, in the version that belongs to "
            "the installed torch"
        )
    if not (problem := _toolkit_problem(environ)):
        return
    yield problem
    if has_torch_npu and torch_npu_version() and environ.get(_AUTOLOAD, "1") != "0":
        yield (
            f"and since torch-npu {torch_npu_version()} is installed, `import torch` itself fails "
            f"here, because torch loads it: set {_AUTOLOAD}=0, or uninstall torch-npu, to use "
            "another platform"
        )


def _toolkit_problem(environ: Mapping[str, str]) -> str:
    """Why the toolkit's runtime library will not be found; empty: it will."""
    if any(Path(folder, _LIBRARY).exists() for folder in _search_path(environ)):
        return ""
    home = environ.get("ASCEND_HOME_PATH", "")
    if home:
        return (
            f"CANN: ASCEND_HOME_PATH={home} has no lib64/{_LIBRARY}, and no folder in "
            "LD_LIBRARY_PATH has it; source set_env.sh of an installed toolkit"
        )
    for usual in _USUAL_HOMES:
        if Path(usual, "lib64", _LIBRARY).exists():
            return (
                f"CANN is in {usual} but not in the environment (ASCEND_HOME_PATH is not set): "
                f"source {Path(usual).parent}/set_env.sh before Python starts"
            )
    return (
        f"CANN is not installed: ASCEND_HOME_PATH is not set and {_LIBRARY} is nowhere in "
        "LD_LIBRARY_PATH; install the CANN toolkit and kernels, and source its set_env.sh"
    )


def _search_path(environ: Mapping[str, str]) -> Iterator[str]:
    if home := environ.get("ASCEND_HOME_PATH"):
        yield str(Path(home, "lib64"))
    yield from filter(None, environ.get("LD_LIBRARY_PATH", "").split(":"))
