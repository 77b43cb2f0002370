"""Stop strings in a text that arrives in pieces: found at once, and nothing shown too early."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Looks for the stop strings of one sequence.

    The match that is complete first counts; of several complete at the same character, the longest.
    So what is found does not depend on how the text was cut into pieces.

    Held back is the longest end of the text that could still become a stop string, and no more;
    nothing is when stop strings are shown anyway.

    Args:
        stops: Never empty, none of them empty.
        is_included: The stop string stays in the text.
    """

    __slots__ = ("_is_included", "_last_characters", "_most", "_stops", "_tail", "matched")

    def __init__(self, stops: Sequence[str], *, is_included: bool) -> None:
        self._stops = tuple(stops)
        self._is_included = is_included
        self._most = max(map(len, self._stops)) - 1  # characters of a match that can be waiting
        self._last_characters = frozenset(c for stop in self._stops for c in stop[:-1])
        self._tail = ""
        self.matched: str | None = None

    def push(self, text: str, *, is_counting: bool = True) -> str:
        """Take in more text and return what may be shown now.

        A stop string that is complete in a text that does not count is passed over, for good; one
        that only begins there is found when it is complete.

        Once `matched` is set the text has ended; later text is not shown.
        """
        if self.matched is not None or not text:
            return ""
        window = self._tail + text
        found = self._find(window, len(self._tail)) if is_counting else None
        if found is not None:
            start, end, self.matched = found
            if self._is_included:
                return window[len(self._tail) : end]
            return window[:start]
        if self._is_included:
            self._tail = window[-self._most :] if self._most else ""
            return text
        held = self._num_held(window)
        shown, self._tail = window[: len(window) - held], window[len(window) - held :]
        return shown

    def flush(self) -> str:
        """What was held back, now that the text has ended without it."""
        held = "" if self._is_included or self.matched is not None else self._tail
        self._tail = ""
        return held

    def _find(self, window: str, begin: int) -> tuple[int, int, str] | None:
        """Start, end and stop string of the match that is complete first after ``begin``.

        Of several complete there, the longest.
        """
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            start = window.find(stop, max(0, begin + 1 - len(stop)))
            if start >= 0:
                found = (start, start + len(stop), stop)
                if best is None or (found[1], found[0]) < (best[1], best[0]):
                    best = found
        return best

    def _num_held(self, window: str) -> int:
        """Characters at the end of ``window`` that begin a stop string."""
        if window[-1] not in self._last_characters:
            return 0
        for length in range(min(self._most, len(window)), 0, -1):
            end = window[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
