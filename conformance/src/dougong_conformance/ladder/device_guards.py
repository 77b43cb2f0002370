"""Device guards for accelerators that this build of torch lacks: fake tensors trace on them.

Without one, indexing by a tensor, a Python argument that is a device, a random fill on a fake
device fail with "not linked with support", and a parameter that wants a gradient ends the process.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

_BUILT_IN = {"cuda": "CUDA", "xpu": "XPU"}
_SOURCE = """#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace c10::impl {
C10_REGISTER_GUARD_IMPL(%(name)s, NoOpDeviceGuardImpl<DeviceType::%(name)s>);
}
"""


@cache
def register(device_type: str) -> None:
    """Register a guard that does nothing for a kind of device; once per process.

    Args:
        device_type: ``"cuda"`` and ``"xpu"`` are known to torch, and their guard is compiled once
            per version of torch into the user's cache folder. Any other takes torch's one place for
            devices that it does not know, of which a process has one.

    Raises:
        RuntimeError: That place is taken by another device, or there is no C++ compiler.
    """
    if device_type in _BUILT_IN:
        if not _has_guard(device_type):
            ctypes.CDLL(str(_library(_BUILT_IN[device_type])), mode=ctypes.RTLD_GLOBAL)
        return
    taken = torch._C._get_privateuse1_backend_name()
    if taken == device_type:
        return
    if taken != "privateuseone":
        raise RuntimeError(
            f"this process has {taken!r} where torch keeps one device that it does not know, so "
            f"{device_type!r} cannot be faked here: use a process of its own "
            "(dougong_conformance.ladder.own_process)"
        )
    from torch.utils import backend_registration

    backend_registration._setup_privateuseone_for_python_backend(rename=device_type)


def _has_guard(device_type: str) -> bool:
    module = getattr(torch, device_type, None)
    return bool(module is not None and module.is_available())


def _library(name: str) -> Path:
    source = _SOURCE % {"name": name}
    made_of = f"{torch.__version__} {source}"
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    built = _cache_folder() / f"guard-{name.lower()}-{digest}.so"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            made = _compile(source, Path(folder))
            made.replace(built)
    return built


def _compile(source: str, folder: Path) -> Path:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise RuntimeError("a C++ compiler is needed to fake this device: install g++ or set CXX")
    code, made = folder / "guard.cpp", folder / "guard.so"
    code.write_text(source, "utf-8")
    torch_folder = Path(torch.__file__).parent
    command = [
        *(compiler, "-std=c++20", "-O1", "-shared", "-fPIC", str(code), "-o", str(made)),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *("-I", str(torch_folder / "include"), "-L", str(torch_folder / "lib"), "-lc10"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return made


def _cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "dougong-conformance"
