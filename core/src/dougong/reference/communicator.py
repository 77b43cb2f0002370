"""`Communicator` over ``torch.distributed``, for any backend name it knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from dougong.contracts import (
    Communicator,
    CommunicatorTimeout,
    DeadlinePhase,
    GroupOptions,
    PeerLost,
    UnsupportedError,
)

_DEFAULT_DEADLINE_S = 1800.0
_DTYPES = frozenset({"float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8"})


class TorchCommunicator(Communicator):
    """One group on a process group of its own, so that two engines never share one.

    ``options.options["backend"]`` names the ``torch.distributed`` backend.
    """

    def __init__(self, options: GroupOptions, device: torch.device) -> None:
        super().__init__(options, device)
        self._phase = DeadlinePhase.LOAD
        self._is_destroyed = False
        backend = options.options.get("backend", "gloo")
        store, rank, size = next(rendezvous(options.init_method, self.rank, self.size))
        self._backend = _make_backend(backend, store, rank, size, self._timeout)

    @property
    def _timeout(self) -> timedelta:
        return timedelta(seconds=self.options.deadlines_s.get(self._phase, _DEFAULT_DEADLINE_S))

    def supported_dtypes(self, op: str) -> frozenset[str]:
        """The same for every call."""
        return _DTYPES

    def _run(self, op: str, tensor: torch.Tensor, start: Callable[[], Any]) -> None:
        if str(tensor.dtype).removeprefix("torch.") not in self.supported_dtypes(op):
            raise UnsupportedError(
                f"{op} of {tensor.dtype}; this communicator takes {', '.join(sorted(_DTYPES))}"
            )
        try:
            start().wait(self._timeout)
        except RuntimeError as exc:
            text = str(exc).lower()
            if "timed out" in text or "timeout" in text:
                raise CommunicatorTimeout(
                    f"{op} of group {self.options.kind} did not complete in {self._timeout}",
                    rank=self.options.rank,
                ) from exc
            raise PeerLost(
                f"{op} of group {self.options.kind} failed: {exc}", rank=self.options.rank
            ) from exc

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """In place."""
        self._run("all_reduce", tensor, lambda: self._backend.allreduce([tensor]))
        return tensor

    def all_gather(self, tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """Joined on the host's side of the call."""
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        self._run("all_gather", tensor, lambda: self._backend.allgather([parts], [tensor]))
        return torch.cat(parts, dim=dim)

    def all_gather_v(self, tensor: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """Padded to the longest part, then cut."""
        longest = max(sizes)
        padded = tensor.new_zeros((longest, *tensor.shape[1:]))
        padded[: tensor.shape[0]] = tensor
        gathered = self.all_gather(padded).view(self.size, longest, *tensor.shape[1:])
        return torch.cat([gathered[rank, :size] for rank, size in enumerate(sizes)])

    def reduce_scatter(self, tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """As a sum everywhere, of which each rank keeps its part."""
        total = self.all_reduce(tensor.clone())
        return total.chunk(self.size, dim=dim)[self.rank].contiguous()

    def reduce_scatter_v(self, tensor: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """As a sum everywhere, of which each rank keeps its part."""
        total = self.all_reduce(tensor.clone())
        start = sum(sizes[: self.rank])
        return total[start : start + sizes[self.rank]].contiguous()

    def broadcast(self, tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
        """In place."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = src, 0
        self._run("broadcast", tensor, lambda: self._backend.broadcast([tensor], options))
        return tensor

    def gather(self, tensor: torch.Tensor, dst: int = 0, dim: int = 0) -> torch.Tensor | None:
        """Gathered everywhere, kept on ``dst``."""
        gathered = self.all_gather(tensor, dim)
        return gathered if self.rank == dst else None

    def send(self, tensor: torch.Tensor, dst: int) -> None:
        """Blocks until the peer took it or its buffer did."""
        self._run("send", tensor, lambda: self._backend.send([tensor.contiguous()], dst, 0))

    def recv(self, shape: Sequence[int], dtype: torch.dtype, src: int) -> torch.Tensor:
        """Blocks until it is here."""
        tensor = torch.empty(tuple(shape), dtype=dtype, device=self.device)
        self._run("recv", tensor, lambda: self._backend.recv([tensor], src, 0))
        return tensor

    def all_to_all(self, tensor: torch.Tensor) -> torch.Tensor:
        """Equal parts."""
        rows = tensor.shape[0] // self.size
        return self.all_to_all_v(tensor, [rows] * self.size, [rows] * self.size)

    def all_to_all_v(
        self, tensor: torch.Tensor, send_sizes: Sequence[int], recv_sizes: Sequence[int]
    ) -> torch.Tensor:
        """Parts of given sizes."""
        out = tensor.new_empty((sum(recv_sizes), *tensor.shape[1:]))
        self._run(
            "all_to_all_v",
            tensor,
            lambda: self._backend.alltoall_base(
                out, tensor.contiguous(), list(recv_sizes), list(send_sizes)
            ),
        )
        return out

    def barrier(self) -> None:
        """Everybody has arrived."""
        token = torch.zeros(1, device=self.device)
        self._run("barrier", token, self._backend.barrier)

    def set_phase(self, phase: DeadlinePhase) -> None:
        """Other deadline from now on."""
        self._phase = phase

    def abort(self) -> None:
        """Let every waiter go."""
        self._backend.abort()

    def suspend(self) -> None:
        """Nothing on the device is held between calls."""

    def resume(self) -> None:
        """Nothing was given back."""

    def destroy(self) -> None:
        """Leave."""
        if not self._is_destroyed:
            self._is_destroyed = True
            self._backend.shutdown()


def _make_backend(name: str, store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    plugin = dist.Backend._plugins.get(name.upper())
    if plugin is not None:
        return plugin.creator_fn(store, rank, size, timeout)
    if name == "gloo":
        return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
    raise UnsupportedError(
        f"torch.distributed knows no backend {name!r}; the platform's import_kernels() must "
        "register it before a group is made"
    )
