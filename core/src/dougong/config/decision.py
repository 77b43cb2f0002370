"""One value of the configuration, who settled it, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

USER = "user"
CHECKPOINT = "checkpoint"
CORE = "core"


def platform_author(name: str) -> str:
    """How a platform signs its decisions."""
    return f"platform {name}"


@dataclass(frozen=True, slots=True)
class Decision:
    """One settled value.

    Attributes:
        field: Option name, as in `EngineArgs`.
        value: Final value.
        author: `USER`, `CHECKPOINT`, `CORE`, or ``platform NAME``.
        reason: One sentence for the operator.
    """

    field: str
    value: Any
    author: str
    reason: str

    def __str__(self) -> str:
        return f"{self.field} = {self.value} [{self.author}] {self.reason}"
