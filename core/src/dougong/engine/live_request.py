"""What the front end keeps of every request that has not ended, whatever it is for."""

from __future__ import annotations

from typing import Protocol

from dougong.errors import DougongError
from dougong.messages import RequestDelta


class LiveRequest(Protocol):
    """A request on the side that knows text.

    Attributes:
        request_id: As the client named it, or made by the front end.
        engine_ids: Ids of its sequences in the engine.
        error: Why it could not be served; it is over then.
    """

    request_id: str
    engine_ids: tuple[str, ...]
    error: DougongError | None

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will come."""
        ...

    def apply(self, delta: RequestDelta) -> bool:
        """Add what a step brought; whether the engine must be told to end it."""
        ...

    def abort(self) -> list[str]:
        """End what is still running; the engine ids to end there."""
        ...

    def fail(self, error: DougongError) -> list[str]:
        """End it with an error of this side; the engine ids to end there."""
        ...
