"""Compiles the double's libraries; no torch is needed, and none may be imported before they lie."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_SOURCES = Path(__file__).parent.parent / "tests" / "double"
_RUNTIME = ("acl_runtime.c", "acl_graphs.c", "acl_refused.c")
_EMPTY = ("libhccl", "libacl_op_compiler", "libge_runner", "libgraph", "libacl_tdt_channel")
"""Libraries that torch_npu is linked with and that need to have nothing; some symbols of the
runtime are looked up in them, so they lead there."""
_FLAGS = ("-O1", "-shared", "-fPIC", "-Wall", "-Wno-unused-parameter")

RUNTIME_LIBRARY = "libascendcl.so"
LIBRARIES = (RUNTIME_LIBRARY, *(f"{name}.so" for name in _EMPTY), "libatb.so")
"""In the order in which they must be loaded."""


def build(folder: Path) -> tuple[Path, ...]:
    """Compile all of them.

    Args:
        folder: Where they go; made.

    Returns:
        Their paths, in the order in which they must be loaded.

    Raises:
        RuntimeError: There is no C compiler, or it failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sources = [str(_SOURCES / name) for name in _RUNTIME]
    _compile(folder / RUNTIME_LIBRARY, *sources)
    for name in _EMPTY:
        led = ("-Wl,--no-as-needed", f"-L{folder}", f"-l:{RUNTIME_LIBRARY}")
        _compile(folder / f"{name}.so", "-x", "c", "/dev/null", *led)
    _compile(folder / "libatb.so", str(_SOURCES / "atb_refused.c"))
    return tuple(folder / name for name in LIBRARIES)


def _compile(made: Path, *arguments: str) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed to build the double: install gcc")
    command = [compiler, *_FLAGS, f"-Wl,-soname,{made.name}", "-o", str(made), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
