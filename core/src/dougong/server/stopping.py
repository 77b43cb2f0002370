"""How a server stops: the first signal lets open answers end, the second ends them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn

from dougong.log import get_logger

_logger = get_logger(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
FORCE_AFTER_S = 3.0  # for clients that do not read the end of their stream


class StoppableServer(uvicorn.Server):
    """Drains at the first signal, and cuts short at the second or when draining took too long.

    Args:
        config: uvicorn's.
        on_stopping: Called once, when draining begins.
        cut_short: Called once, to end every open answer.
        drain_timeout_s: How long draining may take.

    Attributes:
        was_cut_short: An answer was ended before it was whole.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_stopping: Callable[[], None],
        cut_short: Callable[[], None],
        drain_timeout_s: float,
    ) -> None:
        super().__init__(config)
        self._on_stopping = on_stopping
        self._cut_short = cut_short
        self._drain_timeout_s = drain_timeout_s
        self._is_ending = False
        self.was_cut_short = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals in the event loop; none is raised again, for they were obeyed.

        They are taken until the loop is closed: the engine may be closing when one more comes.
        """
        loop = asyncio.get_running_loop()
        for one in _SIGNALS:
            loop.add_signal_handler(one, self.handle_exit, one, None)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take one step further towards the end."""
        if not self.should_exit:
            self.stop(f"signal {signal.Signals(sig).name}")
        else:
            self.end_now("a second signal")

    def stop(self, reason: str) -> None:
        """Begin to drain; does nothing when that has begun already."""
        if self.should_exit:
            return
        self.should_exit = True
        _logger.info(
            "stopping (%s): open answers may end within %g s; a second signal ends them now",
            reason,
            self._drain_timeout_s,
        )
        self._on_stopping()
        asyncio.get_running_loop().call_later(self._drain_timeout_s, self.end_now, "time is up")

    def end_now(self, reason: str) -> None:
        """End open answers; then whatever connections are left."""
        if self._is_ending:
            return
        self._is_ending = True
        self.was_cut_short = bool(self.server_state.tasks)  # one for each open answer
        if self.was_cut_short:
            _logger.warning("ending open answers: %s", reason)
        self._cut_short()
        asyncio.get_running_loop().call_later(FORCE_AFTER_S, self._force)

    def _force(self) -> None:
        for task in list(self.server_state.tasks):
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        self.force_exit = True
