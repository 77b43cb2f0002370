from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pytest
import torch

from dougong.cpu.native import (
    NativeLibrary,
    NotBuilt,
    bind_linear,
    load_native_library,
    pack_linear,
)
from dougong.cpu.native.build import BuiltLibrary, build_kernels, default_cache_dir
from dougong.cpu.native.openmp import loaded_runtimes

# Stands for a compiler: writes a line for each output it makes, slowly, and an empty output.
SLOW_COMPILER = """#!/bin/sh
if [ "$1" = --version ]; then echo slow 1; exit; fi
sleep 0.05
while [ "$1" != -o ]; do shift; done
case "$2" in *.so) echo linked >> "$(dirname "$0")/log";; esac
: > "$2"
"""


def compiler_in(folder: Path, text: str) -> str:
    path = folder / "compiler"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def reason_of(answer: object) -> str:
    assert isinstance(answer, NotBuilt)
    return answer.reason


def test_without_a_compiler_the_reason_is_given(tmp_path: Path) -> None:
    answer = load_native_library(cache_dir=tmp_path, compiler="no-such-compiler")
    assert "no-such-compiler is not on PATH" in reason_of(answer)


def test_a_processor_without_the_instructions_is_named_in_the_reason(tmp_path: Path) -> None:
    assert "isa.neon" in reason_of(build_kernels(cache_dir=tmp_path, features={"isa.neon"}))
    answer = build_kernels(cache_dir=tmp_path, features={"isa.avx2"}, level="avx512")
    assert "avx512" in reason_of(answer)


def test_a_failing_compiler_is_quoted_and_leaves_nothing(tmp_path: Path) -> None:
    script = (
        "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho 'vec.h:1: error: it broke' >&2\nexit 1\n"
    )
    answer = build_kernels(cache_dir=tmp_path, compiler=compiler_in(tmp_path, script))
    assert "error: it broke" in reason_of(answer)
    assert not list(tmp_path.rglob("*.so"))
    assert not list(tmp_path.rglob("*.o"))


def test_a_cache_that_cannot_be_written_is_a_reason(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    compiler = compiler_in(tmp_path, SLOW_COMPILER)
    assert "could not be built" in reason_of(build_kernels(cache_dir=blocked, compiler=compiler))


def test_processes_that_build_at_once_build_once(tmp_path: Path) -> None:
    compiler = compiler_in(tmp_path, SLOW_COMPILER)
    code = (
        "import sys, pathlib\n"
        "from dougong.cpu.native.build import build_kernels\n"
        "built = build_kernels(cache_dir=pathlib.Path(sys.argv[1]), compiler=sys.argv[2])\n"
        "assert built.path.exists(), built\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "cache"), compiler]
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda _: subprocess.run(command, check=False), range(2)))
    assert [run.returncode for run in runs] == [0, 0]
    assert (tmp_path / "log").read_text().splitlines() == ["linked"]


def test_another_flag_or_compiler_is_another_place_in_the_cache(tmp_path: Path) -> None:
    compiler = compiler_in(tmp_path, SLOW_COMPILER)
    levels = [build_kernels(cache_dir=tmp_path, compiler=compiler, level=n) for n in (None, "avx2")]
    compiler_in(tmp_path, SLOW_COMPILER.replace("slow 1", "slow 2"))
    levels.append(build_kernels(cache_dir=tmp_path, compiler=compiler))
    paths = {built.path for built in levels if isinstance(built, BuiltLibrary)}
    assert len(paths) == len(levels)


# Stands for a compiler whose library is the one in the folder, where it puts a line for each.
COPYING_COMPILER = """#!/bin/sh
folder=$(dirname "$0")
if [ "$1" = --version ]; then echo copying 1; exit; fi
while [ "$1" != -o ]; do shift; done
case "$2" in *.so) echo linked >> "$folder/log"; cp "$folder/made.so" "$2";; *) : > "$2";; esac
"""


def copying_compiler(folder: Path, library: NativeLibrary) -> str:
    shutil.copy(library.path, folder / "made.so")
    return compiler_in(folder, COPYING_COMPILER)


def num_linked(folder: Path) -> int:
    return len((folder / "log").read_text().splitlines())


def test_a_damaged_library_is_thrown_away_and_made_anew(
    tmp_path: Path, library: NativeLibrary
) -> None:
    compiler = copying_compiler(tmp_path, library)
    built = build_kernels(cache_dir=tmp_path / "cache", compiler=compiler, level="avx2")
    assert isinstance(built, BuiltLibrary)
    built.path.write_bytes(built.path.read_bytes()[:1000])
    loaded = load_native_library(cache_dir=tmp_path / "cache", compiler=compiler, level="avx2")
    assert isinstance(loaded, NativeLibrary)
    assert num_linked(tmp_path) == 2


def test_a_library_that_cannot_be_loaded_is_not_made_again_at_every_start(tmp_path: Path) -> None:
    compiler = compiler_in(tmp_path, SLOW_COMPILER)  # its libraries are empty files
    for _ in range(2):
        answer = load_native_library(cache_dir=tmp_path, compiler=compiler)
        assert "could not be loaded" in reason_of(answer)
    assert num_linked(tmp_path) == 1
    assert len(list(tmp_path.rglob("*.so"))) == 1


def test_a_damaged_library_in_a_cache_that_may_only_be_read_is_a_reason(
    tmp_path: Path, library: NativeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = copying_compiler(tmp_path, library)
    built = build_kernels(cache_dir=tmp_path / "cache", compiler=compiler, level="avx2")
    assert isinstance(built, BuiltLibrary)
    built.path.write_bytes(b"")
    honest = Path.open

    def read_only(self: Path, mode: str = "r", *rest: Any, **options: Any) -> IO[Any]:
        if "r" not in mode:  # file permissions mean nothing to a test that root runs
            raise PermissionError(13, "Permission denied", str(self))
        return honest(self, mode, *rest, **options)

    def kept(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", read_only)
    monkeypatch.setattr(Path, "unlink", kept)
    answer = load_native_library(cache_dir=tmp_path / "cache", compiler=compiler, level="avx2")
    assert "Permission denied" in reason_of(answer)
    assert num_linked(tmp_path) == 1


# Stands for a compiler from before one of the instruction sets.
OLDER_COMPILER = COPYING_COMPILER.replace(
    "while",
    """case "$*" in *-mavx512bf16*)
  echo "g++: error: unrecognized command line option '-mavx512bf16'" >&2; exit 1;;
esac
while""",
)


def test_a_compiler_that_does_not_know_the_best_level_compiles_the_next_one(
    tmp_path: Path,
    library: NativeLibrary,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copying_compiler(tmp_path, library)
    monkeypatch.setattr(logging.getLogger("dougong"), "propagate", True)
    compiler = compiler_in(tmp_path, OLDER_COMPILER)
    features = {"isa.avx2", "isa.avx512f", "mm.bf16.avx512"}
    loaded = load_native_library(cache_dir=tmp_path / "c", compiler=compiler, features=features)
    assert isinstance(loaded, NativeLibrary)
    assert loaded.level == "avx512"
    assert "avx512_bf16: g++: error: unrecognized" in loaded.note
    assert loaded.note in caplog.text
    assert num_linked(tmp_path) == 1


def test_a_level_that_was_insisted_on_is_not_replaced(tmp_path: Path) -> None:
    answer = build_kernels(
        cache_dir=tmp_path / "cache",
        compiler=compiler_in(tmp_path, OLDER_COMPILER),
        features={"isa.avx2", "isa.avx512f", "mm.bf16.avx512"},
        level="avx512_bf16",
    )
    assert "unrecognized command line option '-mavx512bf16'" in reason_of(answer)


def test_what_a_compiler_says_may_be_in_any_encoding(tmp_path: Path) -> None:
    script = (
        "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\nprintf 'error: \\351chec\\n' >&2\nexit 1\n"
    )
    answer = build_kernels(cache_dir=tmp_path, compiler=compiler_in(tmp_path, script))
    assert "chec" in reason_of(answer)


def test_importing_needs_no_compiler_and_opens_no_library() -> None:
    code = "import dougong.cpu.native\nassert 'kernels.so' not in open('/proc/self/maps').read()\n"
    environment = os.environ | {"PATH": ""}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_one_openmp_runtime_serves_pytorch_and_the_kernels(library: NativeLibrary) -> None:
    linear = bind_linear(library, pack_linear(library, torch.randn(512, 512)))
    out = torch.empty(8, 512)
    linear(torch.randn(8, 512), out)
    assert out.isfinite().all()
    assert len(loaded_runtimes()) == 1
    needed = subprocess.run(
        ["readelf", "-d", str(library.path)], capture_output=True, text=True, check=True
    ).stdout
    assert loaded_runtimes()[0].name in needed


def test_no_second_team_of_threads_appears() -> None:
    """As many threads after the kernels ran as after PyTorch ran."""
    code = (
        "import os, torch\n"
        "from dougong.cpu.native import *\n"
        "torch.set_num_threads(2)\n"
        "x = torch.randn(400, 400)\n"
        "x @ x; (x * 2 + torch.randn(400, 400)).sum(); torch.randn(10**6).exp_()\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "library = load_native_library()\n"
        "linear = bind_linear(library, pack_linear(library, x))\n"
        "linear(x, torch.empty(400, 400))\n"
        "assert len(os.listdir('/proc/self/task')) == before, before\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_cache_is_the_users_unless_told_otherwise(library: NativeLibrary) -> None:
    assert default_cache_dir() in library.path.parents


@pytest.mark.parametrize("asked", [1, 3])
def test_the_number_of_threads_is_what_was_asked_and_changes_no_bit(
    library: NativeLibrary, asked: int
) -> None:
    loaded = load_native_library(level=library.level, num_threads=asked)
    assert isinstance(loaded, NativeLibrary)
    assert loaded.num_threads == asked
    weight, x = torch.randn(300, 200).bfloat16(), torch.randn(60, 200).bfloat16()
    results = []
    for one in (library, loaded):
        out = torch.empty(60, 300, dtype=torch.bfloat16)
        bind_linear(one, pack_linear(one, weight))(x, out)
        results.append(out)
    assert torch.equal(*results)
