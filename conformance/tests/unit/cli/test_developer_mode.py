"""Developer mode: cases are tests of pytest, and it says that it proves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.extra
def test_pytest_runs_cases_by_their_ids_and_says_what_it_is_not(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "pytest", "--pyargs", "dougong_conformance.developer"),
        *("--plugin", "cpu", "-k", "rms_norm and float32", "-v", "-p", "no:cacheprovider"),
        *("-p", "dougong_conformance.pytest_plugin"),  # as its entry point does where it is known
    ]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ}
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "[ops.rms_norm[float32]] PASSED" in ended.stdout
    assert ended.stdout.count("DEVELOPER MODE: not a conformance result") == 2
    assert list(tmp_path.iterdir()) == []
