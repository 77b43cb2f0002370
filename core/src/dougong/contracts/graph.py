"""Capture once, replay often: what a backend allows and who does it.

In contract 1.0 the core runs eagerly and calls no `GraphRunner` yet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class GraphLevel(StrEnum):
    """How much of a step may be captured."""

    NONE = "none"
    PIECEWISE = "piecewise"  # everything but attention
    DECODE = "decode"  # whole steps that hold decodes only
    FULL = "full"  # whole steps of any kind


@dataclass(frozen=True, slots=True)
class GraphSupport:
    """What an attention backend or platform states about capture.

    Attributes:
        level: How much may be captured.
        max_graphs: Graphs that may exist at once; ``None``: no limit known.
        sizes: Token counts it can capture; empty: any.
    """

    level: GraphLevel = GraphLevel.NONE
    max_graphs: int | None = None
    sizes: tuple[int, ...] = ()


class GraphRunner(ABC):
    """Captures and replays. The core owns buckets, padding, input buffers, dispatch and memory."""

    @abstractmethod
    def capture(self, key: Hashable, fn: Callable[[], Any]) -> Any:
        """Run ``fn`` once under capture, keep it as ``key``, return what it returned.

        ``fn`` reads and writes persistent buffers only.

        Raises:
            UnsupportedError: ``fn`` holds something that cannot be captured; the message names it.
        """

    @abstractmethod
    def prepare_replay(self, metadata: Any) -> None:
        """Update what the captured work reads outside its buffers (host-side lengths, for
        instance)."""

    @abstractmethod
    def replay(self, key: Hashable) -> None:
        """Enqueue the captured work on the current stream."""
