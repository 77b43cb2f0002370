"""Subject in the same process: for developer mode and for the fast gate; no verdict hangs on it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from dougong_conformance.outcomes import NotRun
from dougong_conformance.procedures import run_procedure
from dougong_conformance.session import Session
from dougong_conformance.subject import Facts, Raised, Ranks, Subject, SubjectRaised


class LocalSubject:
    """Runs procedures in this process, on one session.

    Args:
        session: Where the plugin is loaded.
        make_ranks: Makes ranks; ``None``: checks that need them are not run.
        make_fresh: Makes the plugin in a process of its own; ``None``: likewise.
    """

    def __init__(
        self,
        session: Session,
        *,
        make_ranks: Callable[[int, bool], Ranks] | None = None,
        make_fresh: Callable[[Mapping[str, str]], Subject] | None = None,
    ) -> None:
        self._session = session
        self._make_ranks = make_ranks
        self._make_fresh = make_fresh
        self._facts: Facts | None = None

    @property
    def facts(self) -> Facts:
        """Asked for once."""
        if self._facts is None:
            self._facts = Facts(**self.call("facts.describe"))
        return self._facts

    def call(self, procedure: str, /, **arguments: Any) -> Any:
        """Run it here."""
        try:
            return run_procedure(self._session, procedure, arguments)
        except Exception as exc:
            raise SubjectRaised(as_raised(exc)) from exc

    def fresh(self, environment: Mapping[str, str] | None = None) -> Subject:
        """Made by whoever made this."""
        if self._make_fresh is None:
            raise NotRun("a process of its own is needed, and this run has one process only")
        return self._make_fresh(environment or {})

    def ranks(self, size: int, *, can_be_killed: bool = False) -> Ranks:
        """Made by whoever made this."""
        if self._make_ranks is None:
            raise NotRun(f"{size} ranks are needed, and this run has one process only")
        return self._make_ranks(size, can_be_killed)


def as_raised(exc: BaseException) -> Raised:
    """An exception as plain data."""
    plain = (bool, int, float, str, type(None))
    return Raised(
        kind=type(exc).__name__,
        kinds=tuple(cls.__name__ for cls in type(exc).__mro__),
        message=str(exc),
        traceback="".join(traceback.format_exception(exc)),
        attributes={
            name: value
            for name, value in vars(exc).items()
            if not name.startswith("_") and isinstance(value, plain)
        },
    )
