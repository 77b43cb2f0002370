"""Capture and replay with HIP graphs, over ``torch.cuda.CUDAGraph``.

Capture is by pieces: attention stays outside. Whole steps are not claimed, since no kernel of
this wheel was captured on a device.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, ClassVar

import torch
from dougong.contracts import GraphLevel, GraphRunner, GraphSupport, UnsupportedError

_NOT_PERMITTED = (
    "hipErrorStreamCapture",  # Unsupported, Invalidated, Implicit, Isolation, ...
    "operation not permitted when stream is capturing",
    "operation would make the legacy stream depend on a capturing blocking stream",
)
_THIS_THREAD = "thread_local"
"""What other threads do meanwhile, RCCL's watchdog among them, does not spoil the capture."""


class HipGraphRunner(GraphRunner):
    """The core owns sizes, padding, buffers, choice and the budget; this class only captures."""

    support: ClassVar[GraphSupport] = GraphSupport(GraphLevel.PIECEWISE)

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._graphs: dict[Hashable, Any] = {}
        self._stream: Any = None
        self._pool: Any = None  # one for all: what one frees another may use
        self._pool_bytes = 0

    def capture(self, key: Hashable) -> AbstractContextManager[None]:
        """What is enqueued inside the block becomes graph ``key``; it does not run."""
        return self._capturing(key)

    @contextmanager
    def _capturing(self, key: Hashable) -> Iterator[None]:
        if self._stream is None:  # the default stream cannot be captured
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]  # torch's
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device)
        before = torch.cuda.memory_reserved(self.device)
        try:
            with torch.cuda.stream(self._stream):
                graph.capture_begin(pool=self._pool, capture_error_mode=_THIS_THREAD)
                yield
                graph.capture_end()
        except BaseException as exc:
            _give_up(graph, self._stream)
            if reason := _not_permitted(exc):
                raise UnsupportedError(f"step {key!r} cannot be captured: {reason}") from exc
            raise
        finally:  # what a failed capture took is counted too
            self._pool_bytes += torch.cuda.memory_reserved(self.device) - before
        self._graphs[key] = graph

    def prepare_replay(self, metadata: Sequence[Any]) -> None:
        """Nothing: attention is never in a graph here."""

    def replay(self, key: Hashable) -> None:
        """Enqueue it on the current stream."""
        self._graphs[key].replay()

    def release(self, key: Hashable) -> None:
        """Drop the graph; the last one takes the pool with it."""
        self._graphs.pop(key).reset()
        if not self._graphs:
            self._stream = self._pool = None
            self._pool_bytes = 0

    def memory_bytes(self) -> int:
        """Of the pool, which only grows while there is a graph."""
        return self._pool_bytes


def _give_up(graph: Any, stream: Any) -> None:
    """End a capture that failed, so that the device goes on."""
    with suppress(RuntimeError), torch.cuda.stream(stream):  # it is over, and says so again
        graph.capture_end()
    with suppress(RuntimeError):
        graph.reset()


def _not_permitted(exc: BaseException) -> str:
    text = str(exc)
    return text.partition("\n")[0] if any(words in text for words in _NOT_PERMITTED) else ""
