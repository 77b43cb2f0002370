"""What a lane's test showed, written down for its report, whether it held or not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dougong_conformance.ladder import evidence

DISTRIBUTION = "dougong-rocm"
COMMAND = "nox -s lane_rocm"


@dataclass
class Shown:
    """A sentence, which a test may make more exact as it goes on, and figures beside it."""

    what: str
    details: dict[str, Any] = field(default_factory=dict)


@contextmanager
def shows(rung: str, what: str) -> Iterator[Shown]:
    """Write evidence when the block ends: failed if it raised, and it is raised again."""
    said, held = Shown(what), False
    try:
        yield said
        held = True
    finally:
        if folder := os.environ.get("LANE_OUT"):
            evidence.write(
                folder, rung, said.what, COMMAND, held, DISTRIBUTION, details=said.details
            )
