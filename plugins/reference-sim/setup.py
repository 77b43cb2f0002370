"""Builds the simulated device: a plain shared library that Python knows nothing of.

It is compiled into ``src/dougong_sim/device`` and copied from there into a wheel. Nothing is
compiled when the sources, the compiler and torch are those of the last build; else only the files
that differ. ``CXX`` names the compiler (``g++``), ``SIM_BUILD_JOBS`` how many run at once (2).
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import runpy
import shutil
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
SOURCES = ROOT / "csrc"
PACKAGE = ROOT / "src" / "dougong_sim" / "device"
OBJECTS = ROOT / "build" / "objects"
LIBRARY = "libdougong_sim.so"
BUILD_INFO = "_build.py"
# -O1: at -O0 a step takes three times as long; at -O2 the compiler does.
FLAGS = ("-std=c++20", "-O1", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter")
DEFINES = ("-DUSE_DISTRIBUTED", "-DUSE_C10D_GLOO", "-DAT_PER_OPERATOR_HEADERS")


class Toolchain:
    """The compiler and the torch to build for, found without importing torch."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            raise SystemExit(
                "dougong-sim is built for the torch that is installed, and there is none: install "
                "torch first, then pip install --no-build-isolation dougong-sim"
            )
        self.torch = Path(spec.origin).parent
        version = runpy.run_path(str(self.torch / "version.py"))
        self.torch_version = str(version["__version__"])
        self.torch_git = str(version["git_version"])
        self.compiler = os.environ.get("CXX", "g++")
        if shutil.which(self.compiler) is None:
            raise SystemExit(
                f"dougong-sim needs a C++20 compiler, and {self.compiler!r} is not on PATH: "
                "install g++, or set CXX to another one"
            )

    def identity(self) -> str:
        """Changes when every file must be compiled anew."""
        version = subprocess.run(
            [self.compiler, "--version"], check=True, capture_output=True, text=True
        ).stdout
        return "\n".join([version, self.torch_version, self.torch_git, *FLAGS, *DEFINES])

    def compile(self, source: Path, target: Path) -> None:
        """One object file, complete or not there."""
        include = self.torch / "include"
        # As system headers, so that only our own warnings are shown.
        includes = ("-isystem", str(include), "-isystem", f"{include}/torch/csrc/api/include")
        part = target.with_suffix(".part")
        subprocess.run(
            [self.compiler, *FLAGS, *DEFINES, *includes, "-c", str(source), "-o", str(part)],
            check=True,
        )
        part.replace(target)

    def link(self, objects: Iterable[Path], target: Path) -> None:
        """The library; a running process keeps the old one."""
        part = target.with_suffix(".part")
        libraries = (f"-L{self.torch / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10")
        subprocess.run(
            [self.compiler, "-shared", *map(str, objects), "-o", str(part), *libraries],
            check=True,
        )
        part.replace(target)


def _digest(parts: Iterable[bytes]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()


def _compile_all(toolchain: Toolchain, sources: list[Path], shared: str) -> list[Path]:
    """Object files of all sources; those that are there already are kept."""
    OBJECTS.mkdir(parents=True, exist_ok=True)
    objects = {
        source: OBJECTS / f"{source.stem}-{_digest([shared.encode(), source.read_bytes()])[:16]}.o"
        for source in sources
    }
    missing = [source for source in sources if not objects[source].exists()]
    jobs = int(os.environ.get("SIM_BUILD_JOBS", "2"))
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        list(pool.map(lambda source: toolchain.compile(source, objects[source]), missing))
    for stale in set(OBJECTS.iterdir()) - set(objects.values()):
        stale.unlink()
    return list(objects.values())


def build() -> None:
    """Brings the library beside the Python package up to date."""
    toolchain = Toolchain()
    headers = sorted(SOURCES.glob("*.h"))
    sources = sorted(SOURCES.glob("*.cpp"), key=lambda path: -path.stat().st_size)
    shared = _digest([toolchain.identity().encode(), *(path.read_bytes() for path in headers)])
    stamp = _digest([shared.encode(), *(path.read_bytes() for path in sorted(sources))])
    info = PACKAGE / BUILD_INFO
    text = (
        '"""What the library beside this file was built for. Written by setup.py."""\n\n'
        f"TORCH_VERSION = {toolchain.torch_version!r}\n"
        f"TORCH_GIT = {toolchain.torch_git!r}\n"
        f"STAMP = {stamp!r}\n"
    )
    OBJECTS.parent.mkdir(parents=True, exist_ok=True)
    with (OBJECTS.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (PACKAGE / LIBRARY).exists() and info.exists() and info.read_text() == text:
            return
        objects = _compile_all(toolchain, sources, shared)
        toolchain.link(objects, PACKAGE / LIBRARY)
        info.write_text(text)


class BuildLibrary(build_ext):
    """In the place of setuptools' own: one library for the whole folder, no Python in it."""

    def run(self) -> None:
        """Builds in place, then copies where a wheel is being filled."""
        build()
        if not self.inplace:
            target = Path(self.build_lib) / "dougong_sim" / "device"
            target.mkdir(parents=True, exist_ok=True)
            for name in (LIBRARY, BUILD_INFO):
                shutil.copy2(PACKAGE / name, target / name)

    def get_source_files(self) -> list[str]:
        """What a source distribution needs of it."""
        return [str(path.relative_to(ROOT)) for path in sorted(SOURCES.iterdir())]

    def get_outputs(self) -> list[str]:
        """Nothing that setuptools should look for."""
        return []

    def get_output_mapping(self) -> dict[str, str]:
        """An editable install finds the files in place."""
        return {}


class PlatformWheel(bdist_wheel):
    """For one operating system and processor, and any Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """The library calls no function of Python."""
        return "py3", "none", super().get_tag()[2]


setup(
    # Named so that setuptools builds a platform's wheel; BuildLibrary ignores it.
    ext_modules=[Extension("dougong_sim.device.library", sources=[])],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel},
)
