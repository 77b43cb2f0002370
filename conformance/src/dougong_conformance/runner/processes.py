"""Child processes in groups of their own: started, watched, ended with all they have started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_TAIL_BYTES = 8192
_TAIL_LINES = 6
_TAIL_CHARACTERS = 900
_STACKS = ("Fatal Python error", "Current thread 0x", "Thread 0x")
_PR_SET_CHILD_SUBREAPER = 36


class Child:
    """A process that leads a session of its own and prints to a log.

    Args:
        pid: Of the process and of its group; this process is its parent.
        log: File for what it prints.
    """

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self.log = log
        self._code: int | None = None

    def code(self) -> int | None:
        """How it ended, negative for a signal; ``None``: it runs."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; ``None``: it still runs."""
        if self.code() is None:
            fd = os.pidfd_open(self.pid)
            try:
                select.select([fd], [], [], timeout_s)
            finally:
                os.close(fd)
        return self.code()

    def end(self, term_s: float) -> None:
        """SIGTERM, at which an executor writes the stacks of its threads; then SIGKILL to all."""
        if self.code() is None:
            os.kill(self.pid, signal.SIGTERM)
            self.wait(term_s)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to the process, its group and whatever descends from it; then collect it."""
        others = descendants(self.pid) if self.code() is None else []
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        kill_all(others)
        while self.wait(1.0) is None:
            os.kill(self.pid, signal.SIGKILL)

    def cut_log(self, max_bytes: int) -> None:
        """Empty the log where it has grown beyond measure; the process appends to it."""
        with contextlib.suppress(OSError):
            if self.log.stat().st_size > max_bytes:
                os.truncate(self.log, 0)
                with self.log.open("ab") as output:
                    output.write(b"(the log grew beyond its limit; what came before is cut)\n")


def start_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    pass_fds: Sequence[int] = (),
    folder: Path | None = None,
) -> Child:
    """Start a process in a session of its own.

    Args:
        command: To run.
        environment: All of it.
        log: File for what it prints; appended to.
        pass_fds: Descriptors that it inherits under the same numbers.
        folder: It starts there.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=tuple(pass_fds),
            cwd=folder,
            start_new_session=True,
        )
    process.returncode = 0  # `Child` collects it; the object must neither do so nor complain
    return Child(process.pid, log)


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent ends; whether that is possible."""
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def kill_all(pids: Iterable[int]) -> None:
    """SIGKILL to each that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def with_mark(mark: str) -> list[int]:
    """Every process that was started with this value somewhere in its environment."""
    found = []
    for pid in _all_pids():
        with contextlib.suppress(OSError):
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return [pid for pid in found if pid != os.getpid()]


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def how_it_ended(code: int | None) -> str:
    """``"was killed by SIGSEGV"``, ``"exited with code 0"``."""
    if code is None:
        return "does not end"
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"exited with code {code}"


def last_lines(log: Path) -> str:
    """The end of a log on one line, printable and short; empty where nothing was printed.

    Of stacks that were written at the end the innermost calls are shown: those come first.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    stacks = [number for number, line in enumerate(lines) if line.startswith(_STACKS)]
    shown = lines[max(0, stacks[0] - 2) :][:_TAIL_LINES] if stacks else lines[-_TAIL_LINES:]
    joined = " | ".join(shown)
    printable = "".join(one if one.isprintable() else "?" for one in joined)
    return printable[:_TAIL_CHARACTERS]


def descendants(pid: int) -> list[int]:
    """Every process that descends from one, as /proc has it now."""
    parents: dict[int, list[int]] = {}
    for other in _all_pids():
        try:
            fields = Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()
        except (OSError, UnicodeDecodeError):
            continue
        parents.setdefault(int(fields[1]), []).append(other)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found
