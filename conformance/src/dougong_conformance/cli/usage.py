"""How a command of this room refuses what it was given."""

from __future__ import annotations

import sys

import typer

PROGRAM = "dougong-conform"
USAGE = 2

_spoken: list[str] = []


def usage_error(reason: str) -> typer.Exit:
    """Print the last line that every end but a good one has; raise what this returns."""
    return ended(USAGE, reason)


def cannot_read(exc: Exception) -> typer.Exit:
    """A file that is not there or not readable, in words; raise what this returns."""
    if isinstance(exc, OSError) and exc.filename and exc.strerror:
        return usage_error(f"{exc.filename}: {exc.strerror}")
    return usage_error(str(exc))


def ended(code: int, reason: str) -> typer.Exit:
    """Print the last line, unless all is well; raise what this returns."""
    if code:
        sys.stdout.flush()
        line = f"{PROGRAM}: exit {code}: {reason}"
        _spoken.append(line)
        typer.echo(line, err=True)
    return typer.Exit(code)


def has_spoken() -> bool:
    """Whether a last line was printed."""
    return bool(_spoken)
