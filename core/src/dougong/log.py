"""Logging: one place that knows the format, the level and the rank."""

from __future__ import annotations

import logging
import sys

_ROOT = "dougong"
_state = {"rank": ""}


class _RankFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        record.rank = _state["rank"]
        return super().format(record)


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module (pass ``__name__``); it never configures anything."""
    return logging.getLogger(name if name.startswith(_ROOT) else f"{_ROOT}.{name}")


def configure_logging(level: str = "INFO", *, rank: int | None = None) -> None:
    """Send Dougong's log to stderr; programs call it once, libraries never do.

    Args:
        level: A ``logging`` level name.
        rank: Shown before each line in worker processes; ``None`` in the front end.
    """
    _state["rank"] = "" if rank is None else f"[rank {rank}] "
    root = logging.getLogger(_ROOT)
    root.setLevel(level)
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_RankFormatter("%(levelname).1s %(asctime)s %(rank)s%(message)s"))
        root.addHandler(handler)
    root.propagate = False
