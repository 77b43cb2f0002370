"""One difference between two plans, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dougong.planner.execution_plan import PassedOver

NOTHING = "none"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was.

    Attributes:
        field: What, as the operator names it (``"op rms_norm (12 places)"``).
        old: As it was, in words.
        new: As it is.
        why: The new plan's reason, where it has one.
    """

    field: str
    old: str
    new: str
    why: str = ""

    def __str__(self) -> str:
        because = f": {self.why}" if self.why else ""
        return f"{self.field} was {self.old} and is {self.new}{because}"


def changed(field: str, old: object, new: object, why: str = "") -> Iterator[Difference]:
    """A difference, where there is one."""
    if old != new:
        yield Difference(field, _told(old), _told(new), why)


def reasons_by_name(passed_over: Sequence[PassedOver]) -> dict[str, str]:
    """Candidate → why it is not used."""
    return {one.name: one.reason for one in passed_over}


def _told(value: object) -> str:
    if value is None or value in ("", ()):
        return NOTHING
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
