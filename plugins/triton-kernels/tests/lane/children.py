"""Compilers run in processes of their own: not interpreting, and each with its own triton."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def compiled(script: str, *args: str, python: Path = Path(sys.executable)) -> dict[str, Any]:
    """What a script of this folder wrote; nothing comes from an earlier run's cache.

    Raises:
        AssertionError: It failed as a whole; what it said is in the message.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        env = {
            **{name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"},
            "TRITON_CACHE_DIR": str(Path(folder, "cache")),
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            [python, "-m", f"tests.lane.{script}", out, *args],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        found: dict[str, Any] = json.loads(out.read_text("utf-8"))
        return found
