"""Capture once, replay often: what a backend allows and who does it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch


class GraphLevel(StrEnum):
    """How much of a step may be captured; each level allows those before it, too."""

    NONE = "none"
    PIECEWISE = "piecewise"  # everything but attention
    DECODE = "decode"  # the whole forward of steps in which each sequence has one query token
    FULL = "full"  # the whole forward of any step


@dataclass(frozen=True, slots=True)
class GraphSupport:
    """What an attention backend or a device states about capture.

    Attributes:
        level: How much may be captured. ``PIECEWISE`` of an attention backend, which is then not
            captured itself: it takes rows of padding, as `CommonAttentionMetadata` has them.
        max_graphs: Graphs that may exist at once; ``None``: no limit known. A whole step is one
            graph; a piecewise one has one more than the model has attention layers.
        sizes: Token counts it can capture; empty: any.
    """

    level: GraphLevel = GraphLevel.NONE
    max_graphs: int | None = None
    sizes: tuple[int, ...] = ()


class GraphRunner(ABC):
    """Captures work of one device and enqueues it again; one per worker, used by one thread.

    The core owns sizes, padding, input buffers, dispatch and the memory budget. Before it
    captures work of some shapes it has run the same work once at those shapes. Of a captured graph
    it counts on this:

    * It reads and writes the very tensors that the block did, and takes no value from the time of
      capture but those that were Python numbers.
    * What was allocated inside the block stays at its address until `release`, for as long as the
      core holds the tensor. What was freed may be shared with graphs that are captured later: the
      core replays the parts of one step in the order of their capture, and copies nothing between
      two steps but what it wrote itself.

    Its module imports without the vendor's runtime, as the platform's does.

    Args:
        device: Of every tensor in the graphs; it is current.

    Attributes:
        support: What the device can capture, whatever the model.
    """

    support: ClassVar[GraphSupport] = GraphSupport(GraphLevel.FULL)

    def __init__(self, device: torch.device) -> None:
        """Keep the device; capture nothing yet."""
        self.device = device

    @abstractmethod
    def capture(self, key: Hashable) -> AbstractContextManager[None]:
        """Inside the block work is captured; what was enqueued there becomes the graph ``key``.

        Whether the work also runs is the runner's affair: until the first `replay` nobody reads
        what it computes. Blocks are not nested. A block may begin in one function and end in
        another: the piecewise capture of a model's forward ends, and the next begins, in the
        middle of an attention layer.

        Args:
            key: Names no graph yet.

        Raises:
            UnsupportedError: The block holds something that cannot be captured; the message names
                it. Any exception, also one that the block raises, leaves no graph of that key and
                a device that goes on.
        """

    @abstractmethod
    def prepare_replay(self, metadata: Sequence[Any]) -> None:
        """Tell the graph that is replayed next what it reads outside its tensors (lengths that a
        kernel takes from the host, for instance).

        Called before each `replay` of a graph that holds attention, and of no other.

        Args:
            metadata: What each KV cache group's `AttentionMetadataBuilder` made for this step;
                valid until the step ends.
        """

    @abstractmethod
    def replay(self, key: Hashable) -> None:
        """Enqueue the captured work on the current stream; never waits for the device."""

    @abstractmethod
    def release(self, key: Hashable) -> None:
        """Give a graph and its memory back; the device is idle and nobody reads its tensors."""

    @abstractmethod
    def memory_bytes(self) -> int:
        """Device memory that the graphs take now, what they share counted once.

        The core keeps it within its budget and leaves it out of the KV cache.
        """
