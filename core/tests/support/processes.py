"""Whether a process that a test did not start itself still runs."""

from __future__ import annotations

from pathlib import Path


def is_running(pid: int) -> bool:
    """A process that has ended and that nobody has collected yet does not run."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
