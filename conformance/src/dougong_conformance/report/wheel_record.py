"""One digest for a wheel's files, by the rule of docs/certificate/README.md, and where they lie.

The core has the same rule (it imports nothing of the suite); both are tested against one example.
"""

from __future__ import annotations

import csv
import hashlib
import zipfile
from importlib import metadata
from pathlib import Path, PurePosixPath

CERTIFICATE_NAME = "conformance-certificate.json"
_KEPT_METADATA = ("METADATA", "WHEEL", "entry_points.txt")
_ROOTS = ("purelib", "platlib")


def record_sha256(text: str) -> str:
    """Of a RECORD, as it lies in a wheel or was installed; empty: no line of it counts."""
    lines = {
        path: row[1]
        for row in csv.reader(text.splitlines())
        if len(row) > 1 and row[1] and (path := installed_path(row[0]))
    }
    if not lines:
        return ""
    written = "".join(f"{path},{lines[path]}\n" for path in sorted(lines))
    return hashlib.sha256(written.encode()).hexdigest()


def installed_path(written: str) -> str:
    """Where a line's file lies once installed; empty: the line does not count."""
    path = PurePosixPath(written)
    if path.name == CERTIFICATE_NAME or path.suffix == ".pyc":
        return ""
    match path.parts:
        case () | ("/", *_):
            return ""
        case parts if ".." in parts:
            return ""
        case (folder, root, *rest) if folder.endswith(".data"):
            return "/".join(rest) if root in _ROOTS else ""
        case (folder, *rest) if folder.endswith(".dist-info"):
            return path.as_posix() if rest in [[name] for name in _KEPT_METADATA] else ""
    return path.as_posix()


def of_wheel(wheel: Path) -> str:
    """Digest of a wheel file.

    Raises:
        ValueError: It is no wheel.
        OSError: It cannot be read.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [one for one in archive.namelist() if one.endswith(".dist-info/RECORD")]
            if len(names) != 1:
                raise ValueError(f"{wheel.name} has {len(names)} RECORD files; a wheel has one")
            return record_sha256(archive.read(names[0]).decode("utf-8"))
    except zipfile.BadZipFile as error:
        raise ValueError(f"{wheel.name} is no wheel: {error}") from error


def of_installed(distribution: str) -> str:
    """Digest of an installed distribution; empty: it has no RECORD, or is not installed."""
    try:
        text = metadata.distribution(distribution).read_text("RECORD")
    except metadata.PackageNotFoundError:
        return ""
    return record_sha256(text or "")
