"""A graph runner for the host: it records torch's calls with their tensors, and makes them again.

What a real device would do with stale inputs, other buffers or memory that nobody wrote shows here:
a replay reads and writes the very tensors of the capture, and memory that was only allocated comes
back as what is no number.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dougong.contracts import GraphRunner, UnsupportedError

_READS_ON_HOST = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select"}
_ALLOCATES = {"aten::empty", "aten::empty_like", "aten::empty_strided"}


@dataclass(slots=True)
class RecordedCall:
    """One call of torch's: again with the same arguments, into the same results."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[torch.Tensor]

    def again(self) -> None:
        if self.func._schema.name in _ALLOCATES:
            for result in self.results:
                if result.is_floating_point():
                    result.fill_(torch.nan)
            return
        new = _tensors(self.func(*self.args, **self.kwargs))
        if not self.results:
            return  # it wrote to an argument
        for result, value in zip(self.results, new, strict=True):
            result.copy_(value)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch annotates it not
    """Records while it is on; refuses what reads a value on the host."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch annotates it not
        self.calls: list[RecordedCall] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func._schema.name in _READS_ON_HOST or _has_mask(func, args):
            raise UnsupportedError(f"{func._schema.name} reads a value on the host")
        result = func(*args, **kwargs)
        if _makes_a_view(func):
            return result  # it shows what its base holds, now as later
        own = [] if _writes_an_argument(func) else _tensors(result)
        self.calls.append(RecordedCall(func, args, kwargs, own))
        return result


@dataclass(slots=True)
class Journal:
    """What runners were asked, in order: ``("capture", key)`` and so on; of ``prepare_replay`` the
    sequences' lengths, as the host knows them."""

    entries: list[tuple[str, Any]] = field(default_factory=list)

    def named(self, name: str) -> list[Any]:
        return [value for entry, value in self.entries if entry == name]


journal = Journal()
"""Every runner writes into it; a test puts its own in its place."""


class RecordedGraphRunner(GraphRunner):
    """Holds one list of calls per graph."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._graphs: dict[Hashable, list[RecordedCall]] = {}
        self._is_open = False

    def capture(self, key: Hashable) -> AbstractContextManager[None]:
        return self._capture(key)

    @contextmanager
    def _capture(self, key: Hashable) -> Iterator[None]:
        assert not self._is_open, "blocks are not nested"
        assert key not in self._graphs, f"{key} names a graph"
        self._is_open = True
        try:
            with Recorder() as recorder:
                yield
        finally:
            self._is_open = False
        self._graphs[key] = recorder.calls
        journal.entries.append(("capture", key))

    def prepare_replay(self, metadata: Sequence[Any]) -> None:
        lengths = [one.seq_lens_cpu.tolist() for one in metadata]
        journal.entries.append(("prepare_replay", lengths))

    def replay(self, key: Hashable) -> None:
        for call in self._graphs[key]:
            call.again()
        journal.entries.append(("replay", key))

    def release(self, key: Hashable) -> None:
        del self._graphs[key]
        journal.entries.append(("release", key))

    def memory_bytes(self) -> int:
        calls = [call for calls in self._graphs.values() for call in calls]
        return sum(result.nbytes for call in calls for result in call.results)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return list(value) if isinstance(value, tuple | list) else []


def _writes_an_argument(func: Any) -> bool:
    return any(
        argument.alias_info is not None and argument.alias_info.is_write
        for argument in func._schema.arguments
    )


def _makes_a_view(func: Any) -> bool:
    return not _writes_an_argument(func) and any(
        result.alias_info is not None for result in func._schema.returns
    )


def _has_mask(func: Any, args: tuple[Any, ...]) -> bool:
    return func._schema.name == "aten::index" and any(
        isinstance(index, torch.Tensor) and index.dtype is torch.bool for index in args[1]
    )
