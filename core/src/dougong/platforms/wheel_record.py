"""What a wheel's RECORD says of its files: one digest for all of them, and whether they are so.

The digest is the same for a wheel and for what an installer made of it, with or without the wheel's
own certificate. docs/certificate/README.md has the rule, and examples that both sides test against.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

CERTIFICATE_NAME = "conformance-certificate.json"
_KEPT_METADATA = frozenset({"METADATA", "WHEEL", "entry_points.txt"})
_CODE = (".py", ".so", ".pyd")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WheelRecord:
    """The lines of a RECORD that count.

    Attributes:
        hashes: Path within the wheel → ``sha256=...`` as RECORD writes it; sorted by path.
        certificates: Paths of the certificates that the wheel carries.
    """

    hashes: dict[str, str]
    certificates: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """Of the lines ``path,hash``; empty: there are none."""
        if not self.hashes:
            return ""
        text = "".join(f"{path},{value}\n" for path, value in self.hashes.items())
        return hashlib.sha256(text.encode()).hexdigest()


def parse_record(text: str) -> WheelRecord:
    """Read a RECORD, as it lies in a wheel or as an installer left it."""
    hashes: dict[str, str] = {}
    certificates = []
    for row in csv.reader(text.splitlines()):
        path = _path(row[0]) if row else ""
        if not path:
            continue
        if PurePosixPath(path).name == CERTIFICATE_NAME:
            certificates.append(path)
        elif len(row) > 1 and row[1]:
            hashes[path] = row[1]
    return WheelRecord(dict(sorted(hashes.items())), tuple(sorted(certificates)))


def installed_record(metadata_path: str) -> WheelRecord | None:
    """RECORD of an installed distribution; ``None``: it has none.

    Args:
        metadata_path: Its ``.dist-info`` folder.
    """
    try:
        return parse_record((Path(metadata_path) / "RECORD").read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        return None


def is_editable(metadata_path: str) -> bool:
    """The distribution is a link to a source folder, whose files nothing pins."""
    try:
        told = json.loads((Path(metadata_path) / "direct_url.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return bool(isinstance(told, dict) and told.get("dir_info", {}).get("editable"))


def changed_files(record: WheelRecord, metadata_path: str) -> Iterator[str]:
    """Installed files that are not as RECORD has them: edited, gone, or code that was put beside.

    Args:
        record: Of the distribution.
        metadata_path: Its ``.dist-info`` folder, beside which its files lie.
    """
    root = Path(metadata_path).parent
    for path, wanted in record.hashes.items():
        if _hash_of(root / path, wanted.partition("=")[0]) != wanted:
            yield path
    packages = {path.partition("/")[0] for path in record.hashes if "/" in path}
    for package in sorted(packages):
        if not package.endswith(".dist-info"):
            yield from _unlisted(root, package, record)


def _unlisted(root: Path, package: str, record: WheelRecord) -> Iterator[str]:
    for file in sorted((root / package).rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.suffix in _CODE and path not in record.hashes:
            yield path


def _path(written: str) -> str:
    """Where the file lies once it is installed; empty: the line does not count."""
    path = PurePosixPath(written)
    parts = path.parts
    if not parts or path.is_absolute() or ".." in parts or path.suffix == ".pyc":
        return ""
    if parts[0].endswith(".data"):
        is_moved = len(parts) > 2 and parts[1] in {"purelib", "platlib"}
        return "/".join(parts[2:]) if is_moved else ""
    is_metadata = parts[0].endswith(".dist-info") and path.name != CERTIFICATE_NAME
    if is_metadata and (len(parts) != 2 or path.name not in _KEPT_METADATA):
        return ""
    return path.as_posix()


def _hash_of(file: Path, algorithm: str) -> str:
    """As RECORD writes it; empty: the file cannot be read, or the algorithm is unknown."""
    try:
        digest = hashlib.new(algorithm)
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
    except (OSError, ValueError):
        return ""
    text = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
    return f"{algorithm}={text}"
