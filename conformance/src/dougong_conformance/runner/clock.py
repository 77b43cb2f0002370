"""How long a case may keep its judge waiting: ten times the judge's own work, within bounds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dougong_conformance.runner.limits import Limits

_NAMES = ("op", "key", "name", "kernel")


class CaseClock:
    """Counts, for one case at a time, the judge's own work and the time spent in calls.

    Args:
        limits: Deadlines.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._compile_budget_s = 0.0
        self._compiled: set[str] = set()
        self._began = time.monotonic()
        self._waited_s = 0.0
        self._starting_s = 0.0
        self._granted_s = 0.0

    def allow_compilation(self, budget_s: float) -> None:
        """Give the first call of each op so much more, as the plugin's claims ask."""
        self._compile_budget_s = max(0.0, min(budget_s, self._limits.compile_max_s))

    def begin_case(self) -> None:
        """Count anew."""
        self._began = time.monotonic()
        self._waited_s = self._starting_s = self._granted_s = 0.0

    @property
    def oracle_s(self) -> float:
        """The judge's own work on this case, so far."""
        return max(0.0, time.monotonic() - self._began - self._waited_s - self._starting_s)

    def left_s(self) -> float:
        """What calls of this case may still take; never below a moment."""
        allowed = self._limits.case_s(self.oracle_s) + self._granted_s
        return max(0.05, allowed - self._waited_s)

    @contextmanager
    def calling(self, procedure: str, arguments: Mapping[str, Any]) -> Iterator[float]:
        """Count a call; gives what it may take."""
        self._grant(procedure, arguments)
        began = time.monotonic()
        try:
            yield self.left_s()
        finally:
            self._waited_s += time.monotonic() - began

    @contextmanager
    def starting(self) -> Iterator[None]:
        """A start is not the case's time."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._starting_s += time.monotonic() - began

    def _grant(self, procedure: str, arguments: Mapping[str, Any]) -> None:
        named = (arguments.get(name) for name in _NAMES)
        what = next((one for one in named if isinstance(one, str)), "")
        if (key := f"{procedure} {what}") not in self._compiled:
            self._compiled.add(key)
            self._granted_s += self._compile_budget_s
