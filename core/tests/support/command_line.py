"""Running a ``dougong`` command inside a test."""

from __future__ import annotations

import logging

import pytest

from dougong.cli import main as command_line


def run_command(*arguments: str) -> int:
    """Run a command line and return its exit code; the log is as before afterwards."""
    loggers = [logging.getLogger(name) for name in ("dougong", "dougong.engine.core")]
    before = [(logger.level, logger.handlers[:], logger.propagate) for logger in loggers]
    loggers[0].handlers.clear()  # a program begins without any, whatever ran before in this process
    try:
        with pytest.raises(SystemExit) as stopped:
            command_line.main(arguments)
    finally:
        for logger, (level, handlers, propagates) in zip(loggers, before, strict=True):
            logger.setLevel(level)
            logger.handlers[:] = handlers
            logger.propagate = propagates
    return int(stopped.value.code or 0)
