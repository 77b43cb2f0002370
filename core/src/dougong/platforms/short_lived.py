"""Questions for a short-lived child: for code that may crash, hang or open a device."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


class ChildFailed(Exception):  # noqa: N818 - names a condition; never leaves the core
    """The child gave no answer; the message says how it ended.

    Args:
        reason: One line.
        stderr: What it wrote last.
    """

    def __init__(self, reason: str, stderr: str = "") -> None:
        self.reason = reason
        self.stderr = stderr
        super().__init__(reason)


def ask_child(module: str, question: object, timeout_s: float) -> Any:
    """Run ``python -m module`` in a child and return what it answered through `answer_parent`.

    Args:
        module: Has a ``__main__`` part that calls `answer_parent`.
        question: JSON data.
        timeout_s: The child is killed afterwards.

    Raises:
        ChildFailed: It crashed, hung or ended itself.
    """
    with tempfile.TemporaryDirectory(prefix="dougong-") as folder:
        asked, answered = Path(folder, "asked.json"), Path(folder, "answered.json")
        asked.write_text(json.dumps(question))
        command = [sys.executable, "-m", module, str(asked), str(answered)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise ChildFailed(f"it gave no answer within {timeout_s:.0f} s") from None
        if not answered.exists():
            lines = done.stderr.strip().splitlines()
            last = f": {lines[-1]}" if lines else ""
            reason = f"it ended its process with code {done.returncode}{last}"
            raise ChildFailed(reason, done.stderr)
        return json.loads(answered.read_text())


def answer_parent(answer: Callable[[Any], object]) -> None:
    """The child's side of `ask_child`: a file carries the answer, so a plugin may print at will."""
    asked, answered = map(Path, sys.argv[1:3])
    finished = answered.with_suffix(".part")
    finished.write_text(json.dumps(answer(json.loads(asked.read_text()))))
    finished.rename(answered)
