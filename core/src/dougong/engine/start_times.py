"""What each part of a start takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Keep how long the block took under ``name``; nothing where it raises."""
    begin = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - begin
