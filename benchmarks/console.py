"""Where tables go."""

from __future__ import annotations

import sys

from rich.console import Console

WIDTH_OF_FILES = 150


def table_console() -> Console:
    """Standard output; wide where it is no terminal, so that no column is cut in a file."""
    return Console(width=None if sys.stdout.isatty() else WIDTH_OF_FILES)
