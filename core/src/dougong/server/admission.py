"""How many answers a server takes on at a time, and that it takes no more once it stops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dougong.errors import CapacityError
from dougong.server.errors import StoppingError


class Admission:
    """Counts live sequences; used in the event loop's thread alone.

    Args:
        max_sequences: Running and waiting together, at most.

    Attributes:
        num_live: Sequences now.
        is_stopping: Nothing new is taken.
    """

    def __init__(self, max_sequences: int) -> None:
        self._max_sequences = max_sequences
        self.num_live = 0
        self.is_stopping = False

    @contextmanager
    def admit(self, num_sequences: int) -> Iterator[None]:
        """Hold places for the block's time. One request alone is always taken.

        Raises:
            CapacityError: There is no room now.
            StoppingError: The server stops.
        """
        if self.is_stopping:
            raise StoppingError("The server is stopping and takes no new requests. Ask another.")
        if self.num_live and self.num_live + num_sequences > self._max_sequences:
            raise CapacityError(
                f"{self.num_live} answers are running or waiting and {num_sequences} more would "
                f"pass the limit of {self._max_sequences} (--max-live-sequences). Try again later."
            )
        self.num_live += num_sequences
        try:
            yield
        finally:
            self.num_live -= num_sequences
