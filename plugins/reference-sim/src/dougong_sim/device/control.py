"""The switchboard of the simulation: modes, faults, counters. After `load` only.

Counters:
    ``op:aten::mm``: calls of an operator, without overload; also the native ones.
    ``launches``: kernels queued; a replay is one.
    ``graph_replay``, ``h2d``, ``d2h``, ``p2p``: what the names say.
    ``sync:device``, ``sync:stream``, ``sync:event``: waits asked for by name.
    ``implicit_sync:item``: waits that nobody asked for: ``item``, ``h2d_copy`` (blocking, as the
        drivers of real devices wait there), ``d2h_copy``, or the operator whose result has a shape
        that depends on values (``aten::nonzero``).
    ``allowed_sync:<name>``: such a wait inside `allow_sync`.
    ``cpu_argument:aten::x``: a CPU scalar tensor among device tensors (legal), or a refused tensor.
    ``undeclared:aten::x``, ``silent_fallback:aten::x``: an operator outside ``ops.txt``: asked for,
        and run on the CPU because the device was not strict.
    ``context:<index>``: the process made a context there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch

from dougong_sim.device.environment import Mode

FaultKind = Literal["error", "lost", "hang", "slow", "corrupt", "oom", "peer_dead"]
SyncPolicy = Literal["count", "warn", "forbid"]

_MODES: tuple[Mode, ...] = ("eager", "lazy", "thread")  # numbered as in csrc/config.h
_POLICIES: tuple[SyncPolicy, ...] = ("count", "warn", "forbid")


def _library() -> Any:
    return torch.ops.dougong_sim


def set_mode(mode: Mode, delay_us: int = 0) -> None:
    """When queued work runs. What was queued before runs first.

    Args:
        mode: ``eager``: before the call returns. ``lazy``: when somebody waits for it, on the
            waiting thread. ``thread``: on a worker per stream.
        delay_us: In thread mode, work does not start before this age unless it is waited for.
    """
    if mode not in _MODES:
        raise ValueError(f"mode {mode!r} is none of {_MODES}")
    _library().set_mode(_MODES.index(mode), delay_us)


def mode() -> tuple[Mode, int]:
    """The mode and its delay in microseconds."""
    return _MODES[int(_library().mode())], int(_library().delay_us())


def set_strict(is_strict: bool) -> bool:
    """Whether operators outside ``ops.txt`` are refused, or served by the CPU.

    Returns:
        How it was before.
    """
    return bool(_library().set_strict(is_strict))


def declare_ops(names: Sequence[str]) -> None:
    """Replaces the operators that the device implements, as ``aten::add``, without overload."""
    _library().declare_ops(list(names))


def set_sync_policy(policy: SyncPolicy) -> SyncPolicy:
    """What an implicit wait does beside being counted. Returns the policy before."""
    return _POLICIES[int(_library().set_sync_policy(_POLICIES.index(policy)))]


@contextmanager
def forbid_implicit_sync() -> Iterator[None]:
    """Inside, in every thread, an implicit wait raises RuntimeError unless it was allowed."""
    before = set_sync_policy("forbid")
    try:
        yield
    finally:
        set_sync_policy(before)


@contextmanager
def allow_sync(name: str) -> Iterator[None]:
    """The one way to permit implicit waits: on this thread, counted as ``allowed_sync:<name>``."""
    _library().push_allowed_sync(name)
    try:
        yield
    finally:
        _library().pop_allowed_sync()


def inject(
    kind: FaultKind,
    device: int = 0,
    after: int = 0,
    op: str = "",
    message: str = "injected fault",
    is_sticky: bool = True,
    *,
    times: int = 1,
    milliseconds: int = 0,
    bit: int = 30,
) -> None:
    """Arms a fault of one device; it strikes when a kernel runs, not when it is launched.

    Args:
        kind: ``error``: the kernel fails, the error comes up at a later wait, and kernels behind
            it do not run. ``lost``: the device is gone. ``hang``: the kernel never ends (see
            `unhang`, `lose`). ``slow``: it takes longer. ``corrupt``: one bit of its result is
            wrong. ``oom``: an allocation fails. ``peer_dead``: a collective finds its peer gone.
        device: Index among the visible ones.
        after: So many matching kernels (allocations) pass first.
        op: Kernels it is aimed at: ``mm``, ``aten::mm``, ``c10d::allreduce``; empty: any.
        message: Part of the error's text.
        is_sticky: Of ``error``: every later call fails too, until `reset`; else it is reported
            once.
        times: How often it strikes; 0: always.
        milliseconds: Of ``slow``.
        bit: Of ``corrupt``: counted from the first byte of the first element of the first output.
            30 is the highest bit of a float32's exponent.
    """
    if kind not in get_args(FaultKind):
        raise ValueError(f"fault {kind!r} is none of {get_args(FaultKind)}")
    name = op if not op or "::" in op else f"aten::{op}"
    _library().inject(device, kind, name, message, after, times, is_sticky, milliseconds, bit)


def lose(device: int = 0) -> None:
    """The device is gone from now on: waits end, every call on it raises."""
    _library().lose(device)


def unhang(device: int = 0) -> None:
    """Lets a hanging kernel end."""
    _library().unhang(device)


def reset(device: int = 0) -> None:
    """Makes the device well: no failure, not lost, not hung, no armed faults, nothing queued."""
    _library().reset(device)


def pending(device: int = 0) -> int:
    """Kernels that were queued and have not begun."""
    return int(_library().pending(device))


def counters() -> dict[str, int]:
    """All counters that are not zero, by name."""
    return dict(_library().counters())


def clear_counters() -> None:
    """Sets all counters to zero."""
    _library().clear_counters()


def set_memory_limit(num_bytes: int, device: int | None = None) -> None:
    """Memory of one device or of all; what is in use stays, even beyond it."""
    indices = range(_library().device_count()) if device is None else (device,)
    for index in indices:
        _library().set_memory_limit(index, num_bytes)


def memory_limit(device: int = 0) -> int:
    """Memory of the device in bytes."""
    return int(_library().memory_limit(device))


def has_context(device: int) -> bool:
    """Whether this process has used the device in a way that costs memory there."""
    return bool(_library().has_context(device))


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor over the device's bytes as they are now, without waiting. For tests only.

    It does not keep the device's memory: use it while ``tensor`` lives.
    """
    view: torch.Tensor = _library().host_view(tensor)
    return view
