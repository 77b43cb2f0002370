"""Makes torch know the device, once per process and only when asked."""

from __future__ import annotations

import atexit
import importlib
from importlib.resources import files
from pathlib import Path
from types import ModuleType

from dougong_sim.device.environment import read_environment

NAME = "sim"
_PACKAGE = Path(__file__).parent
_LIBRARY = _PACKAGE / "libdougong_sim.so"
_BUILD_HINT = "pip install --no-build-isolation dougong-sim builds it for the torch that is here"
_is_loaded = False


class LoadError(ImportError):
    """The device cannot be used in this process; the message says why and what helps."""


def find_library() -> Path | None:
    """The built library, if there is one. Loads nothing and imports no torch."""
    return _LIBRARY if _LIBRARY.exists() else None


def load() -> None:
    """Registers the device type ``sim`` and the module ``torch.sim``. Does nothing when repeated.

    The environment is read now (see `environment`). From here on ``torch.accelerator`` means this
    device in this process, whatever else is installed: so a process loads it or a vendor's device,
    never both.

    Raises:
        LoadError: The library was not built, was built for another torch, or another backend has
            torch's one place for devices from outside.
    """
    global _is_loaded
    if _is_loaded:
        return
    import torch  # only here: the probe imports this package, and must import no torch
    from torch.utils.backend_registration import (
        generate_methods_for_privateuse1_backend,
        rename_privateuse1_backend,
    )

    environment = read_environment()
    _check_build()
    _check_place_is_free()
    # Renamed first: if another backend had come between, this raises before any kernel of ours is
    # installed on its device. The library looks its graphs up under the new name, too.
    rename_privateuse1_backend(NAME)
    torch.ops.load_library(str(_LIBRARY))  # type: ignore[no-untyped-call]  # torch types it not
    torch.ops.dougong_sim.configure(
        list(environment.visible),
        environment.memory_bytes,
        environment.is_exclusive,
        environment.state_dir,
    )
    torch._register_device_module(NAME, _torch_module())  # type: ignore[no-untyped-call]  # nor this
    generate_methods_for_privateuse1_backend(for_storage=True)
    from dougong_sim.device import control

    control.declare_ops(declared_ops())
    control.set_mode(environment.mode, environment.delay_us)
    atexit.register(torch.ops.dougong_sim.quiet_workers)
    _is_loaded = True


def declared_ops() -> tuple[str, ...]:
    """The operators that the device implements beside the few that every backend must have.

    From ``ops.txt``: one a line, without overload; comments begin with ``#``.
    """
    text = files("dougong_sim.device").joinpath("ops.txt").read_text()
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def _torch_module() -> ModuleType:
    return importlib.import_module("dougong_sim.device.torch_module")


def _check_build() -> None:
    import torch

    if not _LIBRARY.exists():
        raise LoadError(f"the simulated device was not built: {_LIBRARY} is missing. {_BUILD_HINT}")
    built = importlib.import_module("dougong_sim.device._build")
    mine = (built.TORCH_VERSION, built.TORCH_GIT)
    found = (torch.__version__, torch.version.git_version)
    if mine != found:
        raise LoadError(
            f"the simulated device was built for torch {mine[0]} ({mine[1]}) and this is torch "
            f"{found[0]} ({found[1]}); a library of torch's internals serves one build only. "
            f"{_BUILD_HINT}"
        )


def _check_place_is_free() -> None:
    import torch

    name = torch._C._get_privateuse1_backend_name()
    has_kernels = torch._C._dispatch_has_kernel_for_dispatch_key(
        "aten::empty.memory_format", "PrivateUse1"
    )
    if name != "privateuseone" or has_kernels:
        raise LoadError(
            f"another device backend, {name!r}, is loaded in this process, and torch has one place "
            "for backends from outside (PrivateUse1). Use the simulated device in a process of its "
            "own"
        )
