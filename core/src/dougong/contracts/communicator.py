"""Collectives of one group of ranks; the core calls no other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from dougong.errors import DeviceError

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
    All ranks make the same calls in the same order. Tensors are contiguous, of at least one axis,
    and live on this rank's device; ranks count within the group. A method leaves its input as it is
    and returns memory of its own, unless it says otherwise: only `broadcast` does.

    Each call is completed within the deadline of the phase it began in, or the group fails with
    `CommunicatorTimeout`; the death of a peer's process fails it with `PeerLost` in less than ten
    seconds, whether somebody waits or not. The first failure of a group is its last: whoever waits
    for it is let go, and every later call raises the same.

    Raises:
        CommunicatorTimeout: A deadline passed; names the ranks that did not come, where known.
        PeerLost: Another rank is gone, or the group was aborted.
        DeviceError: The vendor's library failed in another way.
        UnsupportedError: The dtype is not in `supported_dtypes` of the call, the tensor is not
            contiguous or elsewhere, or the group is suspended or destroyed.
        ValueError: Sizes of this call do not fit each other. Sizes that do not fit another rank's
            are an error where the vendor's library notices.

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
        """Sum over ranks."""

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
        """Send to one rank; matched with its `recv` in order. The host does not wait for the peer,
        the stream may."""

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
        """Return when every rank has arrived; the earlier work of this rank's device has
        finished."""

    def explain(self, exc: BaseException) -> DeviceError | None:
        """Name what the group knows behind an exception that the device raised at a wait.

        An enqueued call fails late, as any work of the device. A worker asks here first, then
        `Platform.classify_error`.

        Returns:
            The group's failure, with the ranks at fault; ``None``: it is not about this group. May
            take two seconds, to ask the peers.
        """
        return None

    @abstractmethod
    def set_phase(self, phase: DeadlinePhase) -> None:
        """Use the deadline of another phase from now on."""

    @abstractmethod
    def abort(self) -> None:
        """Unblock every waiter of this process with `PeerLost`, within 0.1 seconds; callable from
        any thread, more than once."""

    @abstractmethod
    def suspend(self) -> None:
        """Give device resources of the group back; the group stays known. Earlier calls are over
        when it returns; every rank calls it."""

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
