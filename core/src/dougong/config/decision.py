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


def command_author(name: str) -> str:
    """How a command signs what it proposes where the user left a value open."""
    return f"command {name}"


@dataclass(frozen=True, slots=True)
class Decision:
    """One settled value.

    Attributes:
        field: Option name, as in `EngineArgs`.
        value: Final value.
        author: `USER`, `CHECKPOINT`, `CORE`, ``platform NAME`` or ``command NAME``.
        reason: One sentence for the operator.
        is_default: The same wherever nobody asks for another value, so that a short report may
            leave it out.
    """

    field: str
    value: Any
    author: str
    reason: str
    is_default: bool = False

    def __str__(self) -> str:
        return f"{self.field} = {self.value} [{self.author}] {self.reason}"
