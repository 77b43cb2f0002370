"""Whether the engine lives: asked all the time, known at once when it dies."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from dougong.errors import DeviceError, DougongError, EngineDeadError
from dougong.log import get_logger
from dougong.server.served_engine import ServedEngine

_logger = get_logger(__name__)
_PAUSE_S = 0.5


class EngineWatch:
    """Keeps one question open with the engine.

    An engine answers between two steps, so a long prefill delays the answer and means nothing; a
    dead engine answers every question at once, with its death. So the engine is taken to live until
    an answer says otherwise, and how old the last good answer is can be read beside that.

    Args:
        engine: Alive.

    Attributes:
        death: Why the engine is gone; ``None`` while it lives.
        died: Set then.
        is_closing: Its end is meant, so that nobody needs to be alarmed.
    """

    def __init__(self, engine: ServedEngine) -> None:
        self._engine = engine
        self._answered_s = time.monotonic()
        self.death: DougongError | None = None
        self.died = asyncio.Event()
        self.is_closing = False

    @property
    def answer_age_s(self) -> float:
        """Seconds since the engine last said that all is well."""
        return time.monotonic() - self._answered_s

    async def run(self) -> None:
        """Ask until the engine is dead."""
        while self.death is None:
            try:
                await self._engine.health()
                self._answered_s = time.monotonic()
            except (EngineDeadError, DeviceError) as error:
                self._note(error)
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self.died.wait(), _PAUSE_S)

    def note(self, error: Exception) -> None:
        """Learn from an error that a request met."""
        if isinstance(error, EngineDeadError) and self.death is None:
            self._note(error)

    def _note(self, error: DougongError) -> None:
        self.death = error
        self.died.set()
        if not self.is_closing:
            _logger.error("the engine is dead: %s", error)
