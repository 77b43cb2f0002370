"""The last failures that an operator should see; never a word of what a client sent."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from starlette.types import Scope

from dougong.errors import CapacityError, DougongError
from dougong.server.errors import error_answer

KEPT_ERRORS = 50
_MOST_SHOWN = 500


@dataclass(frozen=True, slots=True)
class RecentError:
    """A kind of failure of one route.

    Attributes:
        time: Seconds since 1970, of the last one.
        route: That met it.
        status: HTTP's; of a stream the one that it would have had.
        kind: Class of the error.
        message: For people.
        count: How often in a row.
    """

    time: float
    route: str
    status: int
    kind: str
    message: str
    count: int = 1


class RecentErrors:
    """What answers of 5xx were for, and requests that found no room (429).

    Refusals of wrong requests are not kept: they are their clients' affair, and their words may
    repeat what a client sent. So may an error that nobody foresaw, of which the class alone stays.
    """

    def __init__(self, num_kept: int = KEPT_ERRORS) -> None:
        self._kept: deque[RecentError] = deque(maxlen=num_kept)

    def note(self, route: str, error: Exception) -> None:
        """Keep it if it is an operator's affair; one like the last is counted there."""
        answer = error_answer(error)
        if answer.status < 500 and not isinstance(error, CapacityError):
            return
        is_foreseen = isinstance(error, DougongError)
        text = answer.message if is_foreseen else "Unforeseen; the server's log has the traceback."
        kind = type(error).__name__
        new = (route, answer.status, kind, text[:_MOST_SHOWN])
        count = 1
        if self._kept:
            last = self._kept[-1]
            if (last.route, last.status, last.kind) == new[:3]:
                count += self._kept.pop().count
        self._kept.append(RecentError(time.time(), *new, count))

    def newest_first(self) -> list[dict[str, Any]]:
        """Plain data."""
        return [asdict(one) for one in reversed(self._kept)]


def note_error(scope: Scope, error: Exception) -> None:
    """Keep an error of a request, for the server whose scope it is."""
    app = scope.get("app")
    if app is not None:
        app.state.serving.recent_errors.note(scope["path"], error)
