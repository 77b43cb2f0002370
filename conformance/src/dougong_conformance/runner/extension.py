"""Checks beyond the suite's, for tests of the suite: a folder with rows, checks and procedures.

In it stand ``requirements.toml``, ``conformance_extension_checks.py`` and
``conformance_extension_procedures.py``. A run with one is a run of mode ``selftest``: it can be no
certificate.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from dougong_conformance.requirements import Requirement, requirement_from_row


def extension_requirements(folder: str) -> dict[str, Requirement]:
    """Rows of the folder's table, by id; they stand in the place of the suite's."""
    text = Path(folder, "requirements.toml").read_text(encoding="utf-8")
    rows = [requirement_from_row(row) for row in tomllib.loads(text)["requirement"]]
    return {row.id: row for row in rows}
