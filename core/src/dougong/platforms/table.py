"""The verdict table: every installed plugin, once, with what became of it and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from dougong.contracts.plugin import DeviceInfo, PlatformPlugin

CPU = "cpu"


class Verdict(StrEnum):
    """What became of a plugin; each ends as exactly one."""

    CHOSEN = "chosen"
    AVAILABLE = "available"
    NOT_HERE = "not_here"
    BROKEN = "broken"
    REFUSED = "refused"
    EXCLUDED = "excluded"
    SHADOWED = "shadowed"


FAULTS = frozenset({Verdict.BROKEN, Verdict.REFUSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRow:
    """One entry point of one distribution.

    Attributes:
        name: Entry-point name, as typed after ``--platform``.
        distribution: Name of the wheel.
        version: Of the wheel.
        path: Where its metadata lies.
        entry_point: The object it names, ``"package.module:object"``.
        verdict: What became of it.
        reason: One line; empty only for what is available without remark.
        devices: What the probe found.
        traceback: Of what broke it; empty otherwise.
        is_extension: It brings ops or models, and no platform.
        plugin: The descriptor, where it could be read.
    """

    name: str
    distribution: str
    version: str
    path: str
    entry_point: str
    verdict: Verdict
    reason: str = ""
    devices: tuple[DeviceInfo, ...] = ()
    traceback: str = ""
    is_extension: bool = False
    plugin: PlatformPlugin | None = field(default=None, repr=False, compare=False)

    @property
    def wheel(self) -> str:
        """Distribution and version, for messages."""
        return f"{self.distribution} {self.version}"

    @property
    def is_fault(self) -> bool:
        """It is broken or refused, which its vendor can mend."""
        return self.verdict in FAULTS

    @property
    def entry(self) -> str:
        """Wheel and entry point: which plugin a message is about."""
        return f"{self.wheel} (entry point {self.name} = {self.entry_point})"

    def sentence(self) -> str:
        """Everything a report needs, on one line."""
        return f"{self.entry}: {self.verdict}" + (f": {self.reason}" if self.reason else "")

    def with_verdict(
        self, verdict: Verdict, reason: str | None = None, traceback: str = ""
    ) -> PluginRow:
        """The same plugin, judged anew; ``None`` keeps the reason."""
        kept = self.reason if reason is None else reason
        return replace(self, verdict=verdict, reason=kept, traceback=traceback)

    def to_json(self) -> dict[str, Any]:
        """Plain data; the descriptor is left out."""
        fields = asdict(replace(self, plugin=None))
        del fields["plugin"]
        return fields


@dataclass(frozen=True, slots=True)
class PluginTable:
    """All rows, ordered by name, distribution and path: never by order of installation."""

    rows: tuple[PluginRow, ...]

    @classmethod
    def of(cls, rows: Iterable[PluginRow]) -> PluginTable:
        """Sort ``rows``; of one name and distribution the shadowed ones come last."""
        return cls(
            tuple(
                sorted(
                    rows,
                    key=lambda row: (
                        row.name,
                        row.distribution,
                        row.verdict is Verdict.SHADOWED,
                        row.path,
                    ),
                )
            )
        )

    def named(self, name: str) -> tuple[PluginRow, ...]:
        """Rows that claim ``name``, shadowed ones aside: more than one only when refused."""
        return tuple(
            row for row in self.rows if row.name == name and row.verdict is not Verdict.SHADOWED
        )

    def faults(self) -> tuple[PluginRow, ...]:
        """Broken and refused plugins."""
        return tuple(row for row in self.rows if row.is_fault)

    def replaced(self, change: Callable[[PluginRow], PluginRow]) -> PluginTable:
        """A table with ``change`` applied to every row."""
        return PluginTable(tuple(change(row) for row in self.rows))

    def to_json(self) -> list[dict[str, Any]]:
        """Rows as plain data, in order."""
        return [row.to_json() for row in self.rows]
