"""Capture and replay, over what torch offers for every device."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import torch
from dougong.contracts import GraphLevel, GraphRunner, GraphSupport, UnsupportedError

_NOT_PERMITTED = "while a graph is captured"
"""The library's words for what it cannot capture."""


class SimGraphRunner(GraphRunner):
    """The core owns sizes, padding, buffers, choice and the budget; this class only captures.

    A device that captures less than whole steps says so in ``support``, which is read while
    planning, as is each attention backend's ``graph_support``.
    """

    support: ClassVar[GraphSupport] = GraphSupport(GraphLevel.FULL)

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._graphs: dict[Hashable, torch.accelerator.Graph] = {}
        self._pool: tuple[int, int] | None = None  # one for all: what one frees another may use
        self._pool_bytes = 0

    def capture(self, key: Hashable) -> AbstractContextManager[None]:
        """What is enqueued inside the block becomes graph ``key``; it does not run."""
        return self._capturing(key)

    @contextmanager
    def _capturing(self, key: Hashable) -> Iterator[None]:
        graph = torch.accelerator.Graph(pool=self._pool)
        before = torch.accelerator.memory_reserved(self.device)
        try:
            with graph:
                yield
        except RuntimeError as exc:
            if _NOT_PERMITTED in str(exc):
                reason = str(exc).partition("\n")[0]
                raise UnsupportedError(f"step {key!r} cannot be captured: {reason}") from exc
            raise
        finally:  # what a failed capture took is counted too
            self._pool_bytes += torch.accelerator.memory_reserved(self.device) - before
        self._graphs[key] = graph
        self._pool = graph.pool()

    def prepare_replay(self, metadata: Sequence[Any]) -> None:
        """Nothing: captured work reads buffers alone. A vendor whose kernels take lengths from the
        host hands them over here."""

    def replay(self, key: Hashable) -> None:
        """Enqueue it on the current stream."""
        self._graphs[key].replay()

    def release(self, key: Hashable) -> None:
        """Drop the graph; the last one takes the pool with it."""
        self._graphs.pop(key).reset()
        if not self._graphs:
            self._pool, self._pool_bytes = None, 0

    def memory_bytes(self) -> int:
        """Of the pool, which only grows while there is a graph."""
        return self._pool_bytes
