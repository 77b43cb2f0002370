"""What AITER looks for at import, where there is no ROCm: three programs, a version, two enums.

AITER asks ``hipconfig`` for a version and ``rocminfo`` for an architecture, and builds the module
of its enumerations with ``hipcc``. None of it needs a GPU: the programs answer with a constant, and
the module is built by the host's compiler from the wheel's own header. What of AITER is compiled
for a GPU is not built, and a call of it on a real tensor fails.

Run as a program it makes this beside the environment's packages; `environment` has the variables.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

FOLDER = Path(sys.prefix) / "stand-in-rocm"
ARCH = "gfx942"
CANNOT = 75
"""Exit code of a lane that cannot be had here."""
_MODULE = "module_aiter_enum"
_PROGRAMS = {
    "hipconfig": "echo 6.4.0-0",
    "rocminfo": f"echo '  Name:                    {ARCH}'",
    "hipcc": "echo HIP version: 6.4.0-0",
}
_ENUM = re.compile(r"enum\s+class\s+(\w+)[^{]*\{([^}]*)\}")


def environment() -> dict[str, str]:
    """Variables under which AITER imports."""
    home = FOLDER / "rocm"
    return {
        "ROCM_HOME": str(home),
        "ROCM_PATH": str(home),
        "GPU_ARCHS": ARCH,
        "AITER_JIT_DIR": str(FOLDER / "jit"),
    }


def make() -> None:
    """Make it anew; ends with `CANNOT` where there is no compiler."""
    if shutil.which("g++") is None:
        sys.exit(CANNOT)
    shutil.rmtree(FOLDER, ignore_errors=True)
    _write_programs(FOLDER / "rocm")
    _build_enums(FOLDER / "jit")


def _write_programs(home: Path) -> None:
    (home / "bin").mkdir(parents=True)
    (home / ".info").mkdir()
    (home / ".info" / "version").write_text("6.4.0-0\n", "utf-8")
    for name, line in _PROGRAMS.items():
        program = home / "bin" / name
        program.write_text(f"#!/bin/sh\n{line}\n", "utf-8")
        program.chmod(0o755)


def _build_enums(folder: Path) -> None:
    header = _wheel_folder("aiter_meta") / "csrc" / "include" / "aiter_enum.h"
    folder.mkdir(parents=True)
    source = folder / "enums.cpp"
    source.write_text(_source(header), "utf-8")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    include = (_wheel_folder("pybind11") / "include", sysconfig.get_path("include"), header.parent)
    subprocess.run(
        [
            *("g++", "-std=c++17", "-O1", "-shared", "-fPIC", str(source)),
            *(f"-I{place}" for place in include),
            *("-o", str(folder / f"{_MODULE}{suffix}")),
        ],
        check=True,
    )


def _source(header: Path) -> str:
    """A module with every enumeration of the header, value by value."""
    text = re.sub(r"//[^\n]*", "", header.read_text("utf-8"))
    lines = []
    for name, body in _ENUM.findall(text):
        members = [part.partition("=")[0].strip() for part in body.split(",") if part.strip()]
        values = "".join(f'.value("{one}", {name}::{one})' for one in members)
        lines.append(f'  pybind11::enum_<{name}>(m, "{name}"){values}.export_values();')
        lines.append(f"  pybind11::implicitly_convertible<int, {name}>();")
    return "\n".join(
        [
            "#include <pybind11/pybind11.h>",
            '#include "aiter_enum.h"',
            f"PYBIND11_MODULE({_MODULE}, m) {{",
            *lines,
            "}\n",
        ]
    )


def _wheel_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not installed in {sys.prefix}")
    return Path(next(iter(spec.submodule_search_locations)))


if __name__ == "__main__":
    make()
