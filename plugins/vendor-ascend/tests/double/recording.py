"""Graphs: what is enqueued while one is captured is recorded, and computed when it is replayed.

As on the device a graph holds addresses, not tensors: memory that was freed and used by another is
read and written all the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.double.host_views import HostCall, host_view, on_device

_Hook = ctypes.CFUNCTYPE(None, ctypes.c_int)
_recorded: dict[int, list[Callable[[], None]]] = {}
_hooks: list[Any] = []  # the library keeps their addresses


def install() -> None:
    """Tell the double's library who replays its graphs."""
    _hooks.extend((_Hook(_replay), _Hook(_forget)))
    _library().ascend_double_hooks(*_hooks)


def run(compute: Callable[..., Any], call: HostCall) -> Any:
    """Compute a call now; or, while a graph is captured, record it and give what it will fill."""
    graph = _capturing()
    if not graph:
        return call.back(compute(*call.args, **call.kwargs))
    args, keywords = call.args, call.kwargs
    copies = _Copies()
    shown = compute(*pytree.tree_map(copies, args), **pytree.tree_map(copies, keywords))
    result = call.back(pytree.tree_map(copies.back, shown))
    filled = [
        host_view(tensor) if on_device(tensor) and not copies.is_copy(value) else None
        for value, tensor in zip(pytree.tree_leaves(shown), pytree.tree_leaves(result), strict=True)
    ]

    def again() -> None:
        computed = pytree.tree_leaves(compute(*args, **keywords))
        for memory, value in zip(filled, computed, strict=True):
            if memory is not None:
                memory.copy_(value)

    _recorded.setdefault(graph, []).append(again)
    return result


class _Copies:
    """Stand for arguments while shapes are found out: zeros, for nothing is written or read yet."""

    def __init__(self) -> None:
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        self._pairs.append((copy, value))
        return copy.zero_()

    def is_copy(self, value: Any) -> bool:
        """Whether a result is an argument itself."""
        return any(value is copy for copy, _ in self._pairs)

    def back(self, value: Any) -> Any:
        """The argument for its copy."""
        return next((own for copy, own in self._pairs if value is copy), value)


def _replay(graph: int) -> None:
    for again in _recorded.get(graph, ()):
        again()


def _forget(graph: int) -> None:
    _recorded.pop(graph, None)


@cache
def _library() -> ctypes.CDLL:
    """The double's, which this process has loaded."""
    return ctypes.CDLL(None)


def _capturing() -> int:
    return int(_library().ascend_double_capturing())
