"""Communicators that add wrongly, mix up ranks, or wait for ever."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from dougong.contracts import CommunicatorTimeout, DeadlinePhase, PeerLost

from dougong_conformance.selftest.changes import NotOnThisBase, class_named, with_named_class
from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.session import PluginUnderTest

Tensor = torch.Tensor
Method = Callable[..., Any]
_NAMED_BY = "get_device_communicator_cls"
_FOR_EVER_S = 3600.0


def _with(
    plugin: PluginUnderTest, make: Callable[[type[Any]], dict[str, Method]]
) -> PluginUnderTest:
    """A plugin whose communicator has other methods: ``make(good class)`` gives them."""
    good = class_named(plugin, _NAMED_BY)
    cls = type(good.__name__, (good,), make(good))
    return with_named_class(plugin, _NAMED_BY, cls)


@mutant("C01", "all_reduce gives its input back", killer="communicator.sums")
def _c01(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with(plugin, lambda good: {"all_reduce": lambda self, tensor: tensor.clone()})


@mutant("C02", "all_reduce averages", killer="communicator.sums")
def _c02(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with(
        plugin,
        lambda good: {"all_reduce": lambda self, tensor: good.all_reduce(self, tensor) / self.size},
    )


@mutant("C03", "all_reduce overwrites its input", killer="communicator.inputs_stay")
def _c03(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with(
        plugin,
        lambda good: {
            "all_reduce": lambda self, tensor: tensor.copy_(good.all_reduce(self, tensor))
        },
    )


@mutant(
    "C04", "the rest beyond a multiple of the ranks is not added", killer="communicator.odd_sizes"
)
def _c04(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def all_reduce(self: Any, tensor: Tensor) -> Tensor:
            total = good.all_reduce(self, tensor)
            even = tensor.numel() // self.size * self.size
            total.view(-1)[even:] = tensor.view(-1)[even:]
            return total  # type: ignore[no-any-return]  # of the good class, which is any

        return {"all_reduce": all_reduce}

    return _with(plugin, make)


@mutant("C05", "every group adds over the ranks of the first", killer="communicator.subgroups")
def _c05(plugin: PluginUnderTest) -> PluginUnderTest:
    firsts: dict[int, Any] = {}

    def make(good: type[Any]) -> dict[str, Method]:
        def init(self: Any, options: Any, device: torch.device) -> None:
            good.__init__(self, options, device)
            firsts.setdefault(options.rank, self)

        def all_reduce(self: Any, tensor: Tensor) -> Any:
            return good.all_reduce(firsts[self.options.rank], tensor)

        def destroy(self: Any) -> None:
            if firsts.get(self.options.rank) in (self,):
                del firsts[self.options.rank]
            good.destroy(self)

        return {"__init__": init, "all_reduce": all_reduce, "destroy": destroy}

    return _with(plugin, make)


@mutant(
    "C06",
    "all_gather joins along the first axis, whatever was asked",
    killer="communicator.gathers",
)
def _c06(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with(
        plugin,
        lambda good: {"all_gather": lambda self, tensor, dim=0: good.all_gather(self, tensor, 0)},
    )


@mutant("C07", "all_gather puts a rank's own part first", killer="communicator.gathers")
def _c07(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def all_gather(self: Any, tensor: Tensor, dim: int = 0) -> Tensor:
            parts = list(good.all_gather(self, tensor, dim).chunk(self.size, dim))
            parts.insert(0, parts.pop(self.rank))
            return torch.cat(parts, dim)

        return {"all_gather": all_gather}

    return _with(plugin, make)


@mutant("C08", "every rank keeps the first part", killer="communicator.reduce_scatters")
def _c08(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def reduce_scatter(self: Any, tensor: Tensor, dim: int = 0) -> Any:
            return good.all_reduce(self, tensor).chunk(self.size, dim)[0].contiguous()

        return {"reduce_scatter": reduce_scatter}

    return _with(plugin, make)


@mutant("C09", "broadcast sends from the first rank always", killer="communicator.broadcasts")
def _c09(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with(
        plugin,
        lambda good: {"broadcast": lambda self, tensor, src=0: good.broadcast(self, tensor, 0)},
    )


@mutant("C10", "all_reduce sends numbers of eight bits", killer="communicator.numerics")
def _c10(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def all_reduce(self: Any, tensor: Tensor) -> Any:
            if not tensor.dtype.is_floating_point:
                return good.all_reduce(self, tensor)
            on_host = (tensor.cpu().float() * 16).clamp(-448, 448)
            narrow = on_host.to(torch.float8_e4m3fn).float() / 16
            return good.all_reduce(self, narrow.to(tensor.dtype).to(tensor.device))

        return {"all_reduce": all_reduce}

    return _with(plugin, make)


@mutant(
    "C11",
    "all_reduce reads memory in its order, not the tensor's",
    killer="communicator.not_contiguous",
)
def _c11(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def all_reduce(self: Any, tensor: Tensor) -> Any:
            if not tensor.is_contiguous():
                tensor = torch.as_strided(tensor, (tensor.numel(),), (1,)).view(tensor.shape)
            return good.all_reduce(self, tensor)

        return {"all_reduce": all_reduce}

    return _with(plugin, make)


@mutant(
    "C12",
    "rank 1 never comes to a sum",
    killer="communicator.sums",
    ends=("timeout",),
    needs_process=True,
)
def _c12(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with(
        plugin, lambda good: {"all_reduce": _first(good, 1, lambda: time.sleep(_FOR_EVER_S))}
    )


@mutant(
    "C13",
    "rank 1 aborts in a sum",
    killer="communicator.sums",
    ends=("crash",),
    needs_process=True,
)
def _c13(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with(plugin, lambda good: {"all_reduce": _first(good, 1, os.abort)})


def _first(good: type[Any], rank: int, act: Callable[[], object]) -> Method:
    """`all_reduce` before which one rank does something else."""

    def all_reduce(self: Any, tensor: Tensor) -> Any:
        if self.options.rank == rank:
            act()
        return good.all_reduce(self, tensor)

    return all_reduce


@mutant(
    "C14",
    "a process can use one group until that is gone",
    killer="communicator.two_groups",
    needs_process=True,
)
def _c14(plugin: PluginUnderTest) -> PluginUnderTest:
    in_use: dict[int, Any] = {}

    def make(good: type[Any]) -> dict[str, Method]:
        def all_reduce(self: Any, tensor: Tensor) -> Any:
            limit_s = self.options.deadlines_s.get(DeadlinePhase.LOAD, 60.0)
            until = self.__dict__.setdefault("_gives_up_at", time.monotonic() + limit_s)
            while in_use.setdefault(self.options.rank, self) is not self:
                if time.monotonic() > until:
                    raise CommunicatorTimeout("another group of this process is in use")
                time.sleep(0.01)
            return good.all_reduce(self, tensor)

        def destroy(self: Any) -> None:
            if in_use.get(self.options.rank) in (self,):
                del in_use[self.options.rank]
            good.destroy(self)

        return {"all_reduce": all_reduce, "destroy": destroy}

    return _with(plugin, make)


@mutant(
    "C15",
    "who waits for a dead peer waits for ever",
    killer="communicator.peer_death",
    ends=("timeout",),
    needs_process=True,
)
def _c15(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def all_reduce(self: Any, tensor: Tensor) -> Any:
            try:
                return good.all_reduce(self, tensor)
            except PeerLost:
                time.sleep(_FOR_EVER_S)

        def explain(self: Any, exc: BaseException) -> Any:
            if isinstance(found := good.explain(self, exc), PeerLost):
                time.sleep(_FOR_EVER_S)  # of the device that hangs, not of this method
            return found

        return {"all_reduce": all_reduce, "explain": explain}

    return _with(plugin, make)


@mutant(
    "C16",
    "parts of unlike sizes begin where equal ones would",
    killer="communicator.reduce_scatters",
)
def _c16(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def reduce_scatter_v(self: Any, tensor: Tensor, sizes: Sequence[int]) -> Any:
            total = good.all_reduce(self, tensor)
            start = self.rank * (sum(sizes) // self.size)
            return total[start : start + sizes[self.rank]].clone()

        return {"reduce_scatter_v": reduce_scatter_v}

    return _with(plugin, make)


@mutant("C17", "parts of unlike sizes keep their padding", killer="communicator.gathers")
def _c17(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def all_gather_v(self: Any, tensor: Tensor, sizes: Sequence[int]) -> Any:
            padded = tensor.new_zeros((max(sizes), *tensor.shape[1:]))
            padded[: tensor.shape[0]] = tensor
            return good.all_gather(self, padded)

        return {"all_gather_v": all_gather_v}

    return _with(plugin, make)


@mutant("C18", "gather gives its result on every rank", killer="communicator.gathers")
def _c18(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with(
        plugin,
        lambda good: {
            "gather": lambda self, tensor, dst=0, dim=0: good.all_gather(self, tensor, dim)
        },
    )


@mutant(
    "C19", "all_to_all_v takes the sizes to send for those to take", killer="communicator.exchanges"
)
def _c19(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def all_to_all_v(
            self: Any, tensor: Tensor, send_sizes: Sequence[int], recv_sizes: Sequence[int]
        ) -> Any:
            right = good.all_to_all_v(self, tensor, send_sizes, recv_sizes)
            return right[: sum(send_sizes)].clone()

        return {"all_to_all_v": all_to_all_v}

    return _with(plugin, make)


@mutant("C20", "recv gives the newest message first", killer="communicator.pairs")
def _c20(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def recv(self: Any, shape: Sequence[int], dtype: torch.dtype, src: int) -> Any:
            kept = self.__dict__.setdefault("_kept", {})
            if src in kept:
                return kept.pop(src)
            kept[src] = good.recv(self, shape, dtype, src)
            return good.recv(self, shape, dtype, src)

        return {"recv": recv}

    return _with(plugin, make)


@mutant("C21", "sums of narrow dtypes stay in float32", killer="communicator.dtypes")
def _c21(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def all_reduce(self: Any, tensor: Tensor) -> Any:
            is_narrow = tensor.dtype in (torch.bfloat16, torch.float16)
            return good.all_reduce(self, tensor.float() if is_narrow else tensor)

        return {"all_reduce": all_reduce}

    return _with(plugin, make)


@mutant("C22", "a dtype that it does not take comes back as it was", killer="communicator.dtypes")
def _c22(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def all_reduce(self: Any, tensor: Tensor) -> Any:
            if str(tensor.dtype).removeprefix("torch.") not in self.supported_dtypes("all_reduce"):
                return tensor.clone()
            return good.all_reduce(self, tensor)

        return {"all_reduce": all_reduce}

    return _with(plugin, make)


@mutant("C23", "a barrier lets everybody through", killer="communicator.barrier")
def _c23(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with(plugin, lambda good: {"barrier": lambda self: None})


@mutant(
    "C24",
    "sums run beside the stream that they are asked for on",
    killer="communicator.stream_order",
    mode="thread",
)
def _c24(plugin: PluginUnderTest) -> PluginUnderTest:
    if plugin.name == "cpu":
        raise NotOnThisBase("the host has no streams")

    def make(good: type[Any]) -> dict[str, Method]:
        def all_reduce(self: Any, tensor: Tensor) -> Any:
            with torch.Stream(device=self.device):
                return good.all_reduce(self, tensor)

        return {"all_reduce": all_reduce}

    return _with(plugin, make)


@mutant(
    "C25",
    "deadlines are not kept",
    killer="communicator.silent_peer",
    ends=("timeout", "fail"),
    needs_process=True,
)
def _c25(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def init(self: Any, options: Any, device: torch.device) -> None:
            patient = dict.fromkeys(DeadlinePhase, _FOR_EVER_S)
            good.__init__(self, replace(options, deadlines_s=patient), device)

        return {"__init__": init}

    return _with(plugin, make)


@mutant(
    "C26",
    "a missed deadline has no type of its own",
    killer="communicator.silent_peer",
    needs_process=True,
)
def _c26(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def all_reduce(self: Any, tensor: Tensor) -> Any:
            try:
                return good.all_reduce(self, tensor)
            except CommunicatorTimeout as exc:
                raise RuntimeError("unhandled system error") from exc

        return {"all_reduce": all_reduce, "explain": lambda self, exc: RuntimeError(str(exc))}

    return _with(plugin, make)


@mutant(
    "C27",
    "the deadline of loading stays for good",
    killer="communicator.silent_peer",
    needs_process=True,
)
def _c27(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with(plugin, lambda good: {"set_phase": lambda self, phase: None})


@mutant("C28", "abort does nothing", killer="communicator.abort", needs_process=True)
def _c28(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with(plugin, lambda good: {"abort": lambda self: None})


@mutant("C29", "a suspended group stays so", killer="communicator.suspends")
def _c29(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with(plugin, lambda good: {"resume": lambda self: None})


@mutant("C30", "a group can be destroyed only once", killer="communicator.destroys")
def _c30(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def destroy(self: Any) -> None:
            if self.__dict__.setdefault("_times_destroyed", 0) == 1:
                self._times_destroyed = 2
                raise RuntimeError("invalid handle")
            self._times_destroyed += 1
            good.destroy(self)

        return {"destroy": destroy}

    return _with(plugin, make)


@mutant(
    "C31", "broadcast leaves the receivers' tensors as they were", killer="communicator.broadcasts"
)
def _c31(plugin: PluginUnderTest) -> PluginUnderTest:
    return _with(
        plugin,
        lambda good: {
            "broadcast": lambda self, tensor, src=0: good.broadcast(self, tensor.clone(), src)
        },
    )


@mutant(
    "C32",
    "what only some ranks have is left out of the sum, in silence",
    killer="communicator.mismatched_shapes",
    needs_process=True,
)
def _c32(plugin: PluginUnderTest) -> PluginUnderTest:
    def make(good: type[Any]) -> dict[str, Method]:
        def all_reduce(self: Any, tensor: Tensor) -> Tensor:
            total = tensor.clone()
            total.view(-1)[:64] = good.all_reduce(self, tensor.view(-1)[:64].contiguous())
            return total

        return {"all_reduce": all_reduce}

    return _with(plugin, make)
