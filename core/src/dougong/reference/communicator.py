"""`Communicator` over ``torch.distributed``, for any backend name it knows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from dougong.contracts import (
    Communicator,
    CommunicatorTimeout,
    DeadlinePhase,
    DeviceError,
    GroupOptions,
    PeerLost,
    UnsupportedError,
)
from dougong.reference.communicator_calls import LibraryCalls
from dougong.reference.communicator_group import Group, kind_of, make_library
from dougong.reference.communicator_links import connect_peers
from dougong.reference.communicator_watch import Call, GroupWatch

_DEADLINES_S: Mapping[DeadlinePhase, float] = {
    DeadlinePhase.LOAD: 1800.0,
    DeadlinePhase.WARM_UP: 1800.0,
    DeadlinePhase.SERVE: 300.0,
}
_LIBRARY_SHARE = 0.8  # of the deadline: the library's own timeout, so that its error comes first
_DTYPES = frozenset(
    {"float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8"}
)


class TorchCommunicator(Communicator):
    """One group on a library of its own, so that two engines never share one.

    A watch beside it holds the deadlines and a line to every peer: see docs/adr/0014. Of
    ``GroupOptions.options`` it reads

    * ``backend``: Name of the ``torch.distributed`` backend; ``gloo`` if absent.
    * ``backend_timeouts_s``: The library's own timeout by phase; 0.8 of the deadline if absent.
    * ``address``: This rank's machine as its peers reach it; found if absent.
    """

    def __init__(self, options: GroupOptions, device: torch.device) -> None:
        super().__init__(options, device)
        self._group = Group(options, self.rank)
        self._phase = DeadlinePhase.LOAD
        self._generation = 0
        self._is_destroyed = False
        limit_s = self._limit_s
        until = time.monotonic() + limit_s
        name = f"{options.kind}/{'-'.join(map(str, options.ranks))}"
        self._store = PrefixStore(name, self._meet(limit_s))
        links = connect_peers(
            self._store, self._group, until, str(options.options.get("address", ""))
        )
        self._watch = GroupWatch(self._group, links)
        self._calls = LibraryCalls(self._group, self._watch, device, self.is_stream_ordered)
        self._watch.start(self._calls.abort)
        try:
            self._join()
        except BaseException:
            self.destroy()
            raise

    @property
    def is_stream_ordered(self) -> bool:
        """Whether ``Work.wait()`` of the library makes the stream wait; else it blocks the host."""
        return not torch.empty(0, device=self.device).is_cpu

    def make_library(self, store: Store, timeout: timedelta) -> Any:
        """The ``torch.distributed`` backend object of this group; a vendor may make its own.

        Args:
            store: Nobody else uses it.
            timeout: The library's own.
        """
        name = self.options.options.get("backend", "gloo")
        return make_library(name, store, self._group, timeout, self.device)

    def supported_dtypes(self, op: str) -> frozenset[str]:
        """The same for every call."""
        return _DTYPES

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """In a copy."""
        total = self._checked("all_reduce", tensor).clone()
        self._run("all_reduce", lambda library: library.allreduce([total]))
        return total

    def all_gather(self, tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """Into one tensor, whose parts are then joined along ``dim``."""
        out = self._checked("all_gather", tensor).new_empty((self.size, *tensor.shape))
        self._run(
            "all_gather", lambda library: library._allgather_base(out.view(-1), tensor.view(-1))
        )
        return _join(out, dim)

    def all_gather_v(self, tensor: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """Padded to the longest part, then cut."""
        expected = sum(sizes[self.rank : self.rank + 1])  # of too few sizes there is none
        self._check_sizes("all_gather_v", sizes, tensor.shape[0], expected)
        self._checked("all_gather_v", tensor)
        longest = max(sizes)
        padded = tensor.new_zeros((longest, *tensor.shape[1:]))
        padded[: tensor.shape[0]] = tensor
        out = tensor.new_empty((self.size, *padded.shape))
        if longest:
            self._run(
                "all_gather_v",
                lambda library: library._allgather_base(out.view(-1), padded.view(-1)),
            )
        return torch.cat([out[rank, :rows] for rank, rows in enumerate(sizes)])

    def reduce_scatter(self, tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """With the axis ``dim`` in front while it is on its way."""
        rows, rest = divmod(self._checked("reduce_scatter", tensor).shape[dim], self.size)
        if rest:
            raise ValueError(
                f"reduce_scatter of {tuple(tensor.shape)} along axis {dim}: {self.size} ranks "
                "keep equal parts; use reduce_scatter_v for others"
            )
        front = tensor.movedim(dim, 0).contiguous()
        out = front.new_empty((rows, *front.shape[1:]))
        self._run("reduce_scatter", lambda library: library._reduce_scatter_base(out, front))
        return out.movedim(0, dim).contiguous()

    def reduce_scatter_v(self, tensor: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """As a sum everywhere, of which each rank keeps its part."""
        self._check_sizes("reduce_scatter_v", sizes, tensor.shape[0], sum(sizes))
        total = self._checked("reduce_scatter_v", tensor).clone()
        self._run("reduce_scatter_v", lambda library: library.allreduce([total]))
        start = sum(sizes[: self.rank])
        return total[start : start + sizes[self.rank]].clone()

    def broadcast(self, tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
        """In place."""
        self._checked("broadcast", tensor)
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = src, 0
        self._run("broadcast", lambda library: library.broadcast([tensor], options))
        return tensor

    def gather(self, tensor: torch.Tensor, dst: int = 0, dim: int = 0) -> torch.Tensor | None:
        """Into one tensor on ``dst``, whose parts are then joined along ``dim``."""
        self._checked("gather", tensor)
        options = dist.GatherOptions()
        options.rootRank = dst
        if self.rank != dst:
            self._run("gather", lambda library: library.gather([], [tensor], options))
            return None
        out = tensor.new_empty((self.size, *tensor.shape))
        parts = [list(out.unbind())]
        self._run("gather", lambda library: library.gather(parts, [tensor], options))
        return _join(out, dim)

    def send(self, tensor: torch.Tensor, dst: int) -> None:
        """Of a copy, where the library reads the tensor after this has returned."""
        kept = self._checked("send", tensor)
        if not self.is_stream_ordered:
            kept = tensor.clone()
        self._run("send", lambda library: library.send([kept], dst, 0), peer=dst, is_sent=True)

    def recv(self, shape: Sequence[int], dtype: torch.dtype, src: int) -> torch.Tensor:
        """Into a new tensor."""
        tensor = torch.empty(tuple(shape), dtype=dtype, device=self.device)
        self._checked("recv", tensor)
        self._run("recv", lambda library: library.recv([tensor], src, 0), peer=src)
        return tensor

    def all_to_all(self, tensor: torch.Tensor) -> torch.Tensor:
        """Equal parts."""
        rows, rest = divmod(tensor.shape[0], self.size)
        if rest:
            raise ValueError(
                f"all_to_all of {tensor.shape[0]} rows: {self.size} ranks get equal parts; use "
                "all_to_all_v for others"
            )
        return self._exchange("all_to_all", tensor, [rows] * self.size, [rows] * self.size)

    def all_to_all_v(
        self, tensor: torch.Tensor, send_sizes: Sequence[int], recv_sizes: Sequence[int]
    ) -> torch.Tensor:
        """Parts of given sizes."""
        self._check_sizes("all_to_all_v", recv_sizes, 0, 0)
        self._check_sizes("all_to_all_v", send_sizes, tensor.shape[0], sum(send_sizes))
        return self._exchange("all_to_all_v", tensor, send_sizes, recv_sizes)

    def barrier(self) -> None:
        """Everybody has arrived, and this rank's device is idle."""
        self._calls.idle_device()
        token = torch.zeros(1, device=self.device)
        self._calls.wait_over(self._run("barrier", lambda library: library.allreduce([token])))

    def explain(self, exc: BaseException) -> DeviceError | None:
        """The deadline or the death behind it, where a call of this group has failed."""
        return self._watch.explain()

    def set_phase(self, phase: DeadlinePhase) -> None:
        """Other deadline, and other timeout of the library, from now on."""
        self._phase = phase
        self._calls.set_timeout(self._library_timeout)

    def abort(self) -> None:
        """Let every waiter go: here at once, and on the other ranks as soon as they hear of it."""
        me = self._group.members([self.rank])
        self._watch.fail(PeerLost, f"{self._group.name} was aborted by {me}")

    def suspend(self) -> None:
        """Give the library back, with what it holds on the device; the lines to the peers stay."""
        if self._calls.is_here:
            self._calls.settle(self._phase, self._limit_s)
            self._calls.part()

    def resume(self) -> None:
        """Make the library anew."""
        if self._is_destroyed:
            raise UnsupportedError(f"{self._group.name} was destroyed; make a new group")
        if not self._calls.is_here:
            self._generation += 1
            self._join()

    def destroy(self) -> None:
        """Leave."""
        if not self._is_destroyed:
            self._is_destroyed = True
            self._watch.close()
            self._calls.part()

    @property
    def _limit_s(self) -> float:
        return float(self.options.deadlines_s.get(self._phase, _DEADLINES_S[self._phase]))

    @property
    def _library_timeout(self) -> timedelta:
        given = self.options.options.get("backend_timeouts_s", {})
        return timedelta(seconds=float(given.get(self._phase, _LIBRARY_SHARE * self._limit_s)))

    def _meet(self, limit_s: float) -> Store:
        """The store at the rendezvous address."""
        url, timeout = self.options.init_method, timedelta(seconds=limit_s)
        try:
            store: Store = next(rendezvous(url, self.rank, self.size, timeout=timeout))[0]
        except RuntimeError as exc:
            raise self._group.error(
                kind_of(exc) or CommunicatorTimeout,
                f"{self._group.name} did not meet at {url} within {limit_s:g} s: {exc}",
            ) from exc
        return store

    def _join(self) -> None:
        store = PrefixStore(f"library/{self._generation}", self._store)
        self._calls.make(
            lambda: self.make_library(store, self._library_timeout), self._phase, self._limit_s
        )

    def _checked(self, op: str, tensor: torch.Tensor) -> torch.Tensor:
        taken = self.supported_dtypes(op)
        if str(tensor.dtype).removeprefix("torch.") not in taken:
            raise UnsupportedError(
                f"{op} of {tensor.dtype}; this communicator takes {', '.join(sorted(taken))}"
            )
        if not tensor.is_contiguous():
            raise UnsupportedError(
                f"{op} of a tensor of shape {tuple(tensor.shape)} with strides {tensor.stride()}; "
                "collectives take contiguous tensors: call contiguous() first"
            )
        if tensor.device != self.device:
            raise UnsupportedError(
                f"{op} of a tensor on {tensor.device}; this rank's device is {self.device}"
            )
        return tensor

    def _check_sizes(self, op: str, sizes: Sequence[int], rows: int, expected: int) -> None:
        if len(sizes) != self.size or rows != expected or min(sizes) < 0:
            raise ValueError(
                f"{op} with sizes {list(sizes)}, of {rows} rows: rank {self.rank} of {self.size} "
                f"needs one size per rank, which make {expected} rows here"
            )

    def _exchange(
        self, op: str, tensor: torch.Tensor, send_sizes: Sequence[int], recv_sizes: Sequence[int]
    ) -> torch.Tensor:
        out = self._checked(op, tensor).new_empty((sum(recv_sizes), *tensor.shape[1:]))
        splits = list(recv_sizes), list(send_sizes)
        self._run(op, lambda library: library.alltoall_base(out, tensor, *splits))
        return out

    def _run(
        self,
        op: str,
        start: Callable[[Any], Any],
        peer: int | None = None,
        *,
        is_sent: bool = False,
    ) -> Call:
        return self._calls.run(op, start, self._phase, self._limit_s, peer, is_sent=is_sent)


def _join(parts: torch.Tensor, dim: int) -> torch.Tensor:
    """``[size, *shape]`` to the parts side by side along ``dim`` of ``shape``."""
    axis = dim % (parts.dim() - 1)
    moved = parts.movedim(0, axis)
    shape = list(parts.shape[1:])
    shape[axis] *= parts.shape[0]
    return moved.reshape(shape)
