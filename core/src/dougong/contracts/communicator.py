"""Collectives of one group of ranks; the core calls no other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class GroupKind(StrEnum):
    """Why ranks form a group."""

    TENSOR = "tp"
    PIPELINE = "pp"
    DATA = "dp"
    EXPERT = "ep"


class DeadlinePhase(StrEnum):
    """Each phase has its own completion deadline; loading is the most patient."""

    LOAD = "load"
    WARM_UP = "warm_up"
    SERVE = "serve"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """How to make a group.

    Attributes:
        kind: Which of the four.
        ranks: Global ranks, in group order.
        rank: This process's global rank.
        init_method: Rendezvous address.
        deadlines_s: Seconds per phase; longer than the vendor's own timeout, so that the vendor's
            error surfaces first.
        options: The platform's own, by name.
    """

    kind: GroupKind
    ranks: tuple[int, ...]
    rank: int
    init_method: str
    deadlines_s: Mapping[DeadlinePhase, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


class Communicator(ABC):
    """Collectives over one group.

    A call may return when it is enqueued; its result is ordered with later work of the same stream.
    Tensors are contiguous and live on this rank's device; ranks count within the group.

    Raises:
        CommunicatorTimeout: A deadline passed.
        PeerLost: Another rank is gone.
        UnsupportedError: The dtype is not in `supported_dtypes` of the call.

    Args:
        options: Of the group.
        device: This rank's.
    """

    def __init__(self, options: GroupOptions, device: torch.device) -> None:
        """Join the group; blocks until all ranks have, or the load deadline passes."""
        self.options = options
        self.device = device

    @property
    def rank(self) -> int:
        """This process's rank within the group."""
        return self.options.ranks.index(self.options.rank)

    @property
    def size(self) -> int:
        """Ranks in the group."""
        return len(self.options.ranks)

    @abstractmethod
    def supported_dtypes(self, op: str) -> frozenset[str]:
        """Dtypes that the method named ``op`` takes."""

    @abstractmethod
    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over ranks; may work in place, the result is what is returned."""

    @abstractmethod
    def all_gather(self, tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """Equal tensors of all ranks, joined along ``dim`` in rank order."""

    @abstractmethod
    def all_gather_v(self, tensor: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """As `all_gather` along axis 0, where rank ``i`` gives ``sizes[i]`` rows (0 allowed)."""

    @abstractmethod
    def reduce_scatter(self, tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """Sum over ranks; each rank keeps its equal part along ``dim``."""

    @abstractmethod
    def reduce_scatter_v(self, tensor: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """As `reduce_scatter` along axis 0, where rank ``i`` keeps ``sizes[i]`` rows."""

    @abstractmethod
    def broadcast(self, tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
        """``src``'s tensor on every rank; written in place."""

    @abstractmethod
    def gather(self, tensor: torch.Tensor, dst: int = 0, dim: int = 0) -> torch.Tensor | None:
        """Equal tensors joined along ``dim`` on rank ``dst``; ``None`` elsewhere."""

    @abstractmethod
    def send(self, tensor: torch.Tensor, dst: int) -> None:
        """Send to one rank; matched with its `recv` in order."""

    @abstractmethod
    def recv(self, shape: Sequence[int], dtype: torch.dtype, src: int) -> torch.Tensor:
        """Receive from one rank."""

    @abstractmethod
    def all_to_all(self, tensor: torch.Tensor) -> torch.Tensor:
        """Part ``i`` of axis 0 goes to rank ``i``; parts are equal."""

    @abstractmethod
    def all_to_all_v(
        self, tensor: torch.Tensor, send_sizes: Sequence[int], recv_sizes: Sequence[int]
    ) -> torch.Tensor:
        """As `all_to_all` with row counts per rank; 0 allowed."""

    @abstractmethod
    def barrier(self) -> None:
        """Return when every rank has arrived; the device's earlier work has finished."""

    @abstractmethod
    def set_phase(self, phase: DeadlinePhase) -> None:
        """Use the deadline of another phase from now on."""

    @abstractmethod
    def abort(self) -> None:
        """Unblock every waiter of this process with `PeerLost`; callable from any thread."""

    @abstractmethod
    def suspend(self) -> None:
        """Give device resources of the group back; the group stays known."""

    @abstractmethod
    def resume(self) -> None:
        """Undo `suspend`; every rank calls it."""

    @abstractmethod
    def destroy(self) -> None:
        """Leave the group. Calling it twice is allowed."""

    @classmethod
    def rank_environment(cls, rank: int, size: int) -> Mapping[str, str]:
        """Environment a rank's process needs before the vendor's library loads; declared, not
        set."""
        return {}
