"""The specification's sentences: one row per checkable requirement, in ``spec/<profile>.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any


class Level(StrEnum):
    """How much a requirement weighs."""

    MUST = "must"
    SHOULD = "should"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a check needs of the machine."""

    devices: int = 1
    ranks: int = 1
    memory_mib: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One sentence that a check can contradict.

    Attributes:
        id: ``"<profile>.<rest>"``; stable for ever.
        level: Weight.
        title: A few words, for tables.
        text: The sentence.
        capability: Claim that turns it on (``"attention.sliding_window"``, or several joined by
            ``" and "``); empty: core, and it can never end as not claimed.
        since: First minor of the specification that has it.
        until: Last one; empty: still there.
        is_provisional: Reported and never counted as passed nor failed: the core lacks the
            feature, or the requirement is new in this minor.
        needs: Of the machine.
        kills: Mutants of the self-test that this check is named to reject.
        redundant_with: Requirement that rejects the same mutants; why this one is kept all the
            same is in ``text``.
        because: Public reports of the fault.
        is_smoke: Part of ``smoke``.
        stage: Step of ``smoke --stage``: probe, memory, ops, attention, worker, engine.
    """

    id: str
    level: Level = Level.MUST
    title: str
    text: str
    capability: str = ""
    since: str = "1.0"
    until: str = ""
    is_provisional: bool = False
    needs: Needs = field(default_factory=Needs)
    kills: tuple[str, ...] = ()
    redundant_with: str = ""
    because: tuple[str, ...] = ()
    is_smoke: bool = False
    stage: str = ""

    @property
    def profile(self) -> str:
        """Part of the id before the first dot."""
        return self.id.partition(".")[0]

    @property
    def is_core(self) -> bool:
        """Counts for *Core*: every plugin must meet it."""
        return self.level is Level.MUST and not self.capability and not self.is_provisional


PROFILES = (
    "discovery", "identity", "memory", "streams", "ops", "attention", "kv", "sampling",
    "communicator", "worker", "graph", "quantization", "lora", "engine", "performance",
)  # fmt: skip
"""Every profile, in the order of a report."""

STAGES = ("probe", "memory", "ops", "attention", "worker", "engine")


@cache
def all_requirements() -> dict[str, Requirement]:
    """Every requirement by id, in the order of profiles and files."""
    folder = files("dougong_conformance.spec")
    found: dict[str, Requirement] = {}
    for profile in PROFILES:
        table = tomllib.loads(folder.joinpath(f"{profile}.toml").read_text(encoding="utf-8"))
        for row in table.get("requirement", ()):
            one = requirement_from_row(row)
            if one.profile != profile or one.id in found:
                raise ValueError(f"spec/{profile}.toml: id {one.id!r} is misplaced or repeated")
            found[one.id] = one
    return found


def requirement_from_row(row: dict[str, Any]) -> Requirement:
    """One table of a TOML file as a requirement."""
    kept = dict(row)
    needs = Needs(**kept.pop("needs", {}))
    kept["level"] = Level(kept.get("level", "must"))
    for name in ("kills", "because"):
        kept[name] = tuple(kept.get(name, ()))
    for name, word in (("is_provisional", "provisional"), ("is_smoke", "smoke")):
        kept[name] = bool(kept.pop(word, False))
    return Requirement(needs=needs, **kept)
