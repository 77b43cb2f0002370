"""Compiles the kernels once per machine and keeps the result in a cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import torch

from dougong.cpu.features import detect_features
from dougong.cpu.native.levels import InstructionLevel, usable_levels
from dougong.cpu.native.openmp import runtime_of_torch

_SOURCES = Path(__file__).parent / "csrc"
_COMPILERS = ("g++", "c++")
_TIMEOUT_S = 300.0
# No contraction: a multiply and an add become one rounding only where the source says so.
_FLAGS = (
    *("-O3", "-std=c++17", "-fPIC", "-fopenmp", "-ffp-contract=off", "-fvisibility=hidden"),
    *("-Wall", "-Wno-uninitialized", "-Wno-maybe-uninitialized"),
)


@dataclass(frozen=True, slots=True)
class BuiltLibrary:
    """A compiled shared library, ready to be loaded.

    Attributes:
        path: The file.
        level: One of `levels.LEVELS`.
        note: Why it is not a better level that the processor has; empty where it is the best.
    """

    path: Path
    level: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class NotBuilt:
    """Why there are no native kernels here; one sentence an operator can act on."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Recipe:
    compiler: str
    level: InstructionLevel
    openmp: Path

    @property
    def flags(self) -> tuple[str, ...]:
        return (*_FLAGS, *self.level.flags)

    def key(self) -> str:
        """Changes with everything the result depends on."""
        version = _run([self.compiler, "--version"], timeout_s=60)
        digest = hashlib.sha256()
        for part in (version, *self.flags, str(self.openmp), torch.__version__):
            digest.update(part.encode() + b"\0")
        for source in sorted(_SOURCES.glob("*.[ch]*")):
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
        return f"{self.level.name}-{digest.hexdigest()[:20]}"


def default_cache_dir() -> Path:
    """Where compiled kernels are kept when nobody says otherwise."""
    return platformdirs.user_cache_path("dougong") / "native"


def build_kernels(
    *,
    cache_dir: Path | None = None,
    compiler: str | None = None,
    features: AbstractSet[str] | None = None,
    level: str | None = None,
) -> BuiltLibrary | NotBuilt:
    """Find the kernels in the cache, or compile them into it. Never raises.

    Several processes may call this at once: one compiles, the others wait for it. A library
    appears in the cache whole or not at all; one that was damaged since is made anew.

    Args:
        cache_dir: Folder to keep results in; `default_cache_dir` if ``None``.
        compiler: Name or path of a C++ compiler; ``None``: the first of ``g++`` and ``c++``.
        features: What the processor can do; ``None``: what `detect_features` finds.
        level: Instruction level to insist on; ``None``: the best that ``features`` allow and the
            compiler can compile.
    """
    recipes = _resolve_recipes(compiler, detect_features() if features is None else features, level)
    if isinstance(recipes, NotBuilt):
        return recipes
    refused: list[str] = []
    for recipe in recipes:
        try:
            library = _find_or_compile(recipe, cache_dir or default_cache_dir())
        except subprocess.CalledProcessError as error:  # it may not know these instructions
            refused.append(f"{recipe.level.name}: {_first_error(error)}")
        except (OSError, subprocess.SubprocessError) as error:
            refused.append(f"{recipe.level.name}: {error}")
            return NotBuilt(f"the native kernels could not be built: {'; '.join(refused)}")
        else:
            return BuiltLibrary(library, recipe.level.name, _note(recipe, refused))
    return NotBuilt(f"{recipes[0].compiler} failed on the native kernels: {'; '.join(refused)}")


def _note(recipe: _Recipe, refused: Sequence[str]) -> str:
    if not refused:
        return ""
    return (
        f"the native kernels are compiled for {recipe.level.name} only, since {recipe.compiler} "
        f"failed on better levels of this processor ({'; '.join(refused)}); a newer compiler may "
        "know them"
    )


def _find_or_compile(recipe: _Recipe, cache_dir: Path) -> Path:
    folder = cache_dir / recipe.key()
    library = folder / "kernels.so"
    if not _is_whole(library):
        folder.mkdir(parents=True, exist_ok=True)
        with _exclusive(folder / "build.lock"):
            if not _is_whole(library):
                _compile(recipe, folder, library)
    return library


def _is_whole(library: Path) -> bool:
    """Whether the file is there and complete: loading half a file would end the process."""
    try:
        made = _checksum_of(library).read_bytes()
        return made == _checksum(library)
    except OSError:
        return False


def _checksum(library: Path) -> bytes:
    return hashlib.sha256(library.read_bytes()).hexdigest().encode()


def _checksum_of(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _resolve_recipes(
    compiler: str | None, features: AbstractSet[str], level: str | None
) -> Sequence[_Recipe] | NotBuilt:
    """One for each level that may be compiled, best first."""
    usable = [known for known in usable_levels(features) if level in (None, known.name)]
    if not usable:
        wanted = f"level {level!r}" if level else "any of the levels they are written for"
        known = ", ".join(sorted(features)) or "nothing known"
        return NotBuilt(f"the native kernels have no use of this processor ({known}) at {wanted}")
    wanted_compilers = (compiler,) if compiler else _COMPILERS
    found = next(filter(None, map(shutil.which, wanted_compilers)), None)
    if found is None:
        names = " or ".join(wanted_compilers)
        return NotBuilt(f"no C++ compiler: {names} is not on PATH; install g++ for native kernels")
    openmp = runtime_of_torch()
    if openmp is None:
        return NotBuilt("the OpenMP runtime PyTorch uses could not be told; threads would not mix")
    return [_Recipe(found, known, openmp) for known in usable]


@contextmanager
def _exclusive(lock: Path) -> Iterator[None]:
    import fcntl  # not on every system this module must import on

    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str], timeout_s: float = _TIMEOUT_S) -> str:
    # Compilers speak the user's language, in whatever encoding: no error of ours.
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=timeout_s,
        check=True,
    ).stdout


def _compile(recipe: _Recipe, folder: Path, library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        objects = {path: Path(scratch) / f"{path.stem}.o" for path in _SOURCES.glob("*.cpp")}
        commands = [
            [recipe.compiler, *recipe.flags, "-c", str(source), "-o", str(target)]
            for source, target in objects.items()
        ]
        with ThreadPoolExecutor(max_workers=min(len(commands), os.cpu_count() or 1)) as pool:
            list(pool.map(_run, commands))
        unpublished = Path(scratch) / library.name
        # The runtime by its very file and without -fopenmp, which would add the compiler's own.
        _run(
            [
                *(recipe.compiler, "-shared", "-o", str(unpublished)),
                *map(str, objects.values()),
                *(str(recipe.openmp), f"-Wl,-rpath,{recipe.openmp.parent}", "-Wl,-z,defs"),
            ]
        )
        _checksum_of(library).write_bytes(_checksum(unpublished))
        unpublished.replace(library)


def _first_error(error: subprocess.CalledProcessError) -> str:
    lines = [line for line in str(error.stderr).splitlines() if "error" in line.lower()]
    return (lines or str(error.stderr).splitlines() or [f"exit status {error.returncode}"])[0]
