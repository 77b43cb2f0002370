"""Questions for a short-lived child: for code that may crash, hang or open a device.

No child outlives its parent, however either of them ends: the parent kills what still runs when it
exits, and a child leaves by itself when the pipe to its parent breaks.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dougong import envs

_BURIAL_S = 1.0  # to collect a killed child; one that a driver holds is left to the system
_running: set[subprocess.Popen[bytes]] = set()


class ChildFailed(Exception):  # noqa: N818 - names a condition; never leaves the core
    """The child gave no answer; the message says how it ended.

    Args:
        reason: One line.
        stderr: What it wrote last.
        is_timeout: It was ended because it took too long.
    """

    def __init__(self, reason: str, stderr: str = "", *, is_timeout: bool = False) -> None:
        self.reason = reason
        self.stderr = stderr
        self.is_timeout = is_timeout
        super().__init__(reason)


def ask_child(
    module: str,
    question: object,
    timeout_s: float,
    *,
    environment: Mapping[str, str] | None = None,
) -> Any:
    """Run ``python -m module`` in a child and return what it answered through `answer_parent`.

    Args:
        module: Has a ``__main__`` part that calls `answer_parent`.
        question: JSON data.
        timeout_s: The child is killed afterwards, with everything it started.
        environment: Variables for the child, beside those of this process.

    Raises:
        ChildFailed: It could not be started, crashed, hung or ended itself.
    """
    with tempfile.TemporaryDirectory(prefix="dougong-", ignore_cleanup_errors=True) as folder:
        asked, answered = Path(folder, "asked.json"), Path(folder, "answered.json")
        written = Path(folder, "stderr.txt")
        asked.write_text(json.dumps(question))
        command = [sys.executable, "-m", module, str(asked), str(answered)]
        try:
            with _child(command, written, environment or {}) as process:
                code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            reason = f"it gave no answer within {timeout_s:.0f} s"
            raise ChildFailed(reason, _text(written), is_timeout=True) from None
        except OSError as exc:
            raise ChildFailed(f"it could not be started: {exc}") from exc
        if not answered.exists():
            stderr = _text(written)
            lines = stderr.strip().splitlines()
            last = f": {lines[-1]}" if lines else ""
            raise ChildFailed(f"it ended its process with code {code}{last}", stderr)
        return json.loads(answered.read_text())


def answer_parent(answer: Callable[[Any], object]) -> None:
    """The child's side of `ask_child`: a file carries the answer, so a plugin may print at will."""
    threading.Thread(target=_leave_with_parent, name="dougong-parent", daemon=True).start()
    asked, answered = map(Path, sys.argv[1:3])
    finished = answered.with_suffix(".part")
    finished.write_text(json.dumps(answer(json.loads(asked.read_text()))))
    finished.rename(answered)


def _leave_with_parent() -> None:
    """The parent never writes: its end of the pipe closes when it is gone."""
    with contextlib.suppress(OSError):
        os.read(0, 1)
        os._exit(1)


@contextlib.contextmanager
def _child(
    command: list[str], stderr: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A child in a session of its own, so that what it starts can be ended with it."""
    with stderr.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
            env=envs.with_variables(environment),
        )
    _running.add(process)
    try:
        yield process
    finally:
        _end(process)
        assert process.stdin is not None
        process.stdin.close()
        _running.discard(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_BURIAL_S)


@atexit.register
def _end_all() -> None:
    for process in tuple(_running):
        _end(process)


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
