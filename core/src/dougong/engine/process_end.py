"""How a process ended, in words for whoever waited for it."""

from __future__ import annotations

import signal


def how_it_ended(pid: int | None, exit_code: int | None) -> str:
    """Why an engine's process answers nothing more.

    Args:
        pid: Of the process.
        exit_code: As ``multiprocessing`` gives it: below 0, the number of the signal that killed
            it; ``None``: unknown.
    """
    hint = " The system may have been out of memory." if exit_code == -signal.SIGKILL else ""
    if exit_code is not None and exit_code < 0:
        how = f"was killed by signal {-exit_code} ({_signal_name(-exit_code)})"
    else:
        how = f"ended with exit code {exit_code}"
    return (
        f"The engine's process (pid {pid}) {how} and answers nothing more.{hint} Start a new one."
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # of the real-time signals only the first and the last have a name
        return signal.strsignal(number) or "unnamed"
