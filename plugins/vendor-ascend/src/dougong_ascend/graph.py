"""Graphs of the vendor's runtime (ACL), around attention: see `FusedInferBackend.graph_support`."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import torch
from dougong.contracts import GraphLevel, GraphRunner, GraphSupport, UnsupportedError

from dougong_ascend.platform import LAUNCH_BLOCKING_ENV
from dougong_ascend.slots import PADDING_SLOTS

MAX_GRAPHS = 1800
"""Each graph holds a stream of the device, of which there are 2048 for everything."""
SIZES = (1, 2, 4, 8, *range(16, 257, 16), *range(288, PADDING_SLOTS + 1, 32))
"""Token counts: no larger than there are slots for padding, which a step fills up with."""

_REASONS = (
    ("107030", "it copies from the host or waits for the device, which no capture allows"),
    ("207008", "the device has no stream left for it; capture fewer sizes with --graph-sizes"),
    ("Alloc sq cq fail", "the driver has no queue left for it; it needs HDK 25.5.1 or later"),
)


class AscendGraphRunner(GraphRunner):
    """Captures what is enqueued, all graphs in one pool of memory."""

    support: ClassVar[GraphSupport] = GraphSupport(
        GraphLevel.PIECEWISE, max_graphs=MAX_GRAPHS, sizes=SIZES
    )

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._graphs: dict[Hashable, Any] = {}
        self._pool: Any = None  # one for all: what one frees another may use
        self._stream: Any = None
        self._pool_bytes = 0

    @property
    def _npu(self) -> Any:
        return torch.get_device_module(self.device.type)

    def capture(self, key: Hashable) -> AbstractContextManager[None]:
        """What is enqueued inside the block becomes graph ``key``; it does not run.

        Raises:
            UnsupportedError: Also where the process was started so that each launch is waited for.
        """
        if os.environ.get(LAUNCH_BLOCKING_ENV) == "1":
            raise UnsupportedError(
                f"step {key!r} cannot be captured with {LAUNCH_BLOCKING_ENV}=1; unset it, or use "
                "--enforce-eager"
            )
        return self._capturing(key)

    @contextmanager
    def _capturing(self, key: Hashable) -> Iterator[None]:
        npu = self._npu
        if self._pool is None:
            self._pool = npu.graph_pool_handle()
        if self._stream is None:
            # Without one torch-npu captures on a stream of its own, made once for a process: on the
            # device of the first capture, whichever device this is.
            self._stream = npu.Stream(self.device)
        graph = npu.NPUGraph()
        before = npu.memory_reserved(self.device)
        try:
            with npu.graph(graph, pool=self._pool, stream=self._stream):
                before = npu.memory_reserved(self.device)  # entering gives unused memory back
                yield
        except RuntimeError as exc:
            if reason := _why_not(exc):
                raise UnsupportedError(f"step {key!r} cannot be captured: {reason}") from exc
            raise
        finally:  # what a failed capture took is counted too
            self._pool_bytes += max(0, npu.memory_reserved(self.device) - before)
        self._graphs[key] = graph

    def prepare_replay(self, metadata: Sequence[Any]) -> None:
        """Nothing: no graph holds attention, which alone takes lengths from the host."""

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


def _why_not(exc: BaseException) -> str:
    """Why a capture failed; empty: for a reason that is not one of capturing."""
    told = [str(exc), str(exc.__context__ or "")]  # ending a broken capture raises once more
    return next((reason for sign, reason in _REASONS if any(sign in text for text in told)), "")
