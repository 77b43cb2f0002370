"""Runs import-linter with given rules over the packages of a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# importlinter has no `python -m`, and its script is not on every PATH.
_LINT = "import sys; from importlinter.cli import lint_imports_command as main; sys.exit(main())"


def lint(rules: Path, folder: Path) -> tuple[int, str]:
    """Exit code and what it said."""
    done = subprocess.run(
        [sys.executable, "-c", _LINT, "--no-logo", "--no-cache", str(rules)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
