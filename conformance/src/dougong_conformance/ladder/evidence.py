"""What a vendor's test writes down for the report: one file for each thing that it showed."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from dougong_conformance.report.ladder import (
    EVIDENCE_FOLDER,
    EVIDENCE_FORMAT,
    evidence_from_json,
)

_SLUG_LENGTH = 48


def write(
    folder: Path | str,
    rung: str,
    what: str,
    command: str,
    passed: bool,
    distribution: str,
    *,
    details: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``evidence/<rung>-<slug>.json`` into a folder, as ``evidence.schema.json`` has it.

    Args:
        folder: Of the report.
        rung: ``"L0"``, ``"L1"``, ``"L2"``, ``"L4"``, ``"L5"``; or ``"beside"`` for what is worth
            knowing and reaches no rung.
        what: One sentence with numbers: ``"87 of 87 calls bind to the schemas of acme 8.1"``.
        command: That shows it again.
        passed: Whether it was shown; what was not shown is written as well, and speaks against
            the rung.
        distribution: The wheel that was tested; its installed version is written with it.
        details: Whatever else is known, as JSON has it; kept, not shown.

    Returns:
        The file.

    Raises:
        ValueError: It does not fit the schema; nothing is written.
        importlib.metadata.PackageNotFoundError: The wheel is not installed.
    """
    content: dict[str, Any] = {
        "format": EVIDENCE_FORMAT,
        "rung": rung,
        "what": what,
        "command": command,
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "result": "passed" if passed else "failed",
        "distribution": distribution,
        "version": metadata.version(distribution),
    }
    if details:
        content["details"] = dict(details)
    evidence_from_json(content)
    place = Path(folder) / EVIDENCE_FOLDER
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{rung.lower()}-{_slug(what)}.json"
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    return path


def _slug(what: str) -> str:
    """Words of the sentence; of a long one the first, and what tells it from others."""
    words = re.sub(r"[^a-z0-9]+", "-", what.lower()).strip("-")
    if len(words) <= _SLUG_LENGTH:
        return words
    rest = hashlib.sha256(what.encode()).hexdigest()[:6]
    return f"{words[:_SLUG_LENGTH].strip('-')}-{rest}"
