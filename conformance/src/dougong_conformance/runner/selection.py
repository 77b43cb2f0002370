"""Which cases a run is asked for: by profile, by words, by step of a port."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from dougong_conformance.requirements import Requirement
from dougong_conformance.results import Selection

_STAGES: Mapping[str, str] = {
    **dict.fromkeys(("discovery", "identity"), "probe"),
    **dict.fromkeys(("memory", "streams"), "memory"),
    **dict.fromkeys(("ops", "sampling", "quantization", "lora"), "ops"),
    **dict.fromkeys(("attention", "kv"), "attention"),
    **dict.fromkeys(("communicator", "worker", "graph"), "worker"),
    **dict.fromkeys(("engine", "performance"), "engine"),
}


class BadExpression(Exception):
    """What stands after ``-k`` cannot be understood."""


def select(
    ids: Iterable[str], requirements: Mapping[str, Requirement], chosen: Selection
) -> tuple[str, ...]:
    """Cases that are asked for, in their order.

    Raises:
        BadExpression: See `matches`.
    """
    return tuple(one for one in ids if is_selected(one, requirements, chosen))


def is_selected(id: str, requirements: Mapping[str, Requirement], chosen: Selection) -> bool:
    """Whether a case is asked for; one whose requirement is unknown is not.

    Raises:
        BadExpression: See `matches`.
    """
    row = requirements.get(requirement_of(id))
    if row is None:
        return False
    if chosen.cases and id not in chosen.cases and row.id not in chosen.cases:
        return False
    if chosen.profiles and row.profile not in chosen.profiles:
        return False
    if chosen.is_smoke and not row.is_smoke:
        return False
    if chosen.stage and stage_of(row) != chosen.stage:
        return False
    return matches(chosen.expression, id)


def stage_of(row: Requirement) -> str:
    """Step of a port that a requirement belongs to: as its row says, else as its profile has it."""
    return row.stage or _STAGES[row.profile]


def requirement_of(id: str) -> str:
    """``"ops.rms_norm"`` of ``"ops.rms_norm[bfloat16]"``."""
    return id.partition("[")[0]


def matches(expression: str, text: str) -> bool:
    """As pytest's ``-k``: words, of which each is part of the text or not, and, or, not, ().

    Raises:
        BadExpression: It cannot be understood.
    """
    if not expression.strip():
        return True
    return _Expression(expression, text).value()


class _Expression:
    def __init__(self, expression: str, text: str) -> None:
        self._whole = expression
        self._words = re.findall(r"[()]|[^\s()]+", expression)
        self._text = text.lower()

    def value(self) -> bool:
        found = self._either()
        if self._words:
            raise self._bad()
        return found

    def _either(self) -> bool:
        found = self._both()
        while self._is_next("or"):
            found = self._both() or found
        return found

    def _both(self) -> bool:
        found = self._one()
        while self._is_next("and"):
            found = self._one() and found
        return found

    def _one(self) -> bool:
        if self._is_next("not"):
            return not self._one()
        if self._is_next("("):
            found = self._either()
            if not self._is_next(")"):
                raise self._bad()
            return found
        if not self._words or self._words[0] in (")", "and", "or"):
            raise self._bad()
        return self._words.pop(0).lower() in self._text

    def _is_next(self, word: str) -> bool:
        if self._words and self._words[0] == word:
            self._words.pop(0)
            return True
        return False

    def _bad(self) -> BadExpression:
        return BadExpression(
            f"-k {self._whole!r} cannot be understood; use words with and, or, not and brackets"
        )
