"""Memory of a device: how much, taken and given back, copied and looked at."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from typing import Any

import torch
from dougong.worker.faults import classified

from dougong_conformance.drivers.op_plan import choose
from dougong_conformance.drivers.ops import bound_op, made_op
from dougong_conformance.local import as_raised
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session

_PIECE_BYTES = 16 << 20


@procedure("memory.info")
def info(session: Session, device_index: int | None = None) -> dict[str, int]:
    """Free and total bytes, once the device is open and all that is unused was given back."""
    index = session.device_index if device_index is None else device_index
    settle(session)
    found = session.runtime.memory_info(index)
    return {"free": found.free_bytes, "total": found.total_bytes}


@procedure("memory.limit")
def limit(session: Session) -> int:
    """Bytes that the facts give as the limit of this device."""
    _ = session.device
    return int(session.platform.facts(session.device_index).memory_limit_bytes)


@procedure("memory.hold")
def hold(
    session: Session,
    name: str,
    num_bytes: int,
    device_index: int | None = None,
    in_one: bool = False,
) -> int:
    """Take memory, write all of it and keep it until it is dropped.

    Args:
        session: The plugin.
        name: To drop it by.
        num_bytes: To take.
        device_index: Where; ``None``: on the session's device.
        in_one: As one piece, for allocators that round every piece up.

    Returns:
        Bytes that are held.
    """
    device = _device(session, device_index)
    pieces: list[torch.Tensor] = []
    session.kept[name] = pieces
    left = num_bytes
    while left > 0:
        piece = torch.empty(
            left if in_one else min(left, _PIECE_BYTES), dtype=torch.uint8, device=device
        )
        pieces.append(piece.fill_(1))
        left -= piece.numel()
    session.runtime.synchronize()
    return sum(piece.numel() for piece in pieces)


@procedure("memory.drop")
def drop(session: Session, name: str) -> None:
    """Give back what is held under a name."""
    session.kept.pop(name, None)
    settle(session)


@procedure("memory.churn")
def churn(session: Session, count: int, num_bytes: int) -> dict[str, int]:
    """Take and give back, many times; what is free before and after."""
    _ = session.device
    before = info(session)["free"]
    for _ in range(count):
        torch.empty(num_bytes, dtype=torch.uint8, device=session.device).fill_(1)
    return {"before": before, "after": info(session)["free"]}


@procedure("memory.exhaust")
def exhaust(session: Session, num_bytes: int) -> dict[str, Any]:
    """Ask for more than there is, in one piece.

    Returns:
        ``raised``: as the core would pass it on; ``original``: as the device raised it; both
        ``None`` where nothing was raised.
    """
    device = session.device
    raised = original = None
    try:
        with classified(session.platform, device_index=session.device_index, rank=0):
            kept = torch.empty(num_bytes, dtype=torch.uint8, device=device)
            session.runtime.synchronize()
            del kept
    except Exception as exc:  # noqa: BLE001 - whatever it is, the judge looks at it
        raised = as_raised(exc)
        original = as_raised(exc.__cause__) if exc.__cause__ else raised
    settle(session)
    return {"raised": raised, "original": original}


@procedure("memory.works")
def works(session: Session, tensor: torch.Tensor) -> torch.Tensor:
    """A small computation: the tensor doubled on the device, back on the host."""
    return (tensor.to(session.device) * 2).cpu()


@procedure("memory.zeros_after_dirty")
def zeros_after_dirty(session: Session, numel: int, rounds: int) -> list[torch.Tensor]:
    """Zeros in memory that held NaN just before."""
    found = []
    for _ in range(rounds):
        dirty = torch.empty(numel, device=session.device)
        dirty.fill_(math.nan)
        session.runtime.synchronize()
        del dirty
        found.append(torch.zeros(numel, device=session.device).cpu())
        grown = torch.empty(numel, device=session.device).zero_()
        found.append(grown.cpu())
    return found


@procedure("memory.strided_copies")
def strided_copies(session: Session, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Views that are not contiguous, copied each way.

    Args:
        session: The plugin.
        tensor: ``[rows, columns]`` on the host, with an even number of columns.
    """
    there = tensor.to(session.device)
    target = torch.zeros_like(there)
    target.t().copy_(tensor.t())
    sparse = torch.zeros(tensor.shape[0], 2 * tensor.shape[1], dtype=tensor.dtype)
    sparse[:, ::2].copy_(there)
    wide = torch.zeros(tensor.shape[0], 2 * tensor.shape[1], dtype=tensor.dtype).to(session.device)
    wide[:, 1::2].copy_(tensor)
    return {
        "device to host, transposed": there.t().cpu(),
        "device to host, every second column": there[:, ::2].cpu(),
        "device to host, from an offset": there.flatten()[3:].cpu(),
        "host to device, transposed": target.cpu(),
        "device to host, into every second column": sparse,
        "host to device, into every second column": wide.cpu(),
        "device to device, transposed": there.t().contiguous().cpu(),
    }


@procedure("memory.host_buffers")
def host_buffers(session: Session, shape: Sequence[int], dtype: str) -> dict[str, Any]:
    """Two buffers for copies, made one after the other and alive together."""
    _ = session.device
    kind = getattr(torch, dtype)
    first, second = (session.runtime.empty_host(tuple(shape), kind) for _ in range(2))
    first.fill_(1)
    second.fill_(2)
    return {
        "first": first.clone(),
        "second": second.clone(),
        "device": first.device.type,
        "is_contiguous": first.is_contiguous(),
        "is_pinned": _is_pinned(first),
    }


@procedure("memory.async_copies")
def async_copies(session: Session, tensor: torch.Tensor, poison: float) -> dict[str, torch.Tensor]:
    """Copies that may run behind the host, their sources poisoned as soon as that is allowed."""
    runtime, device = session.runtime, session.device
    up = runtime.empty_host(tuple(tensor.shape), tensor.dtype)
    up.copy_(tensor)
    there = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
    there.copy_(up, non_blocking=True)
    event = runtime.new_event()
    event.record()
    event.synchronize()
    up.fill_(poison)  # the event has passed, so the buffer is the host's again

    down = runtime.empty_host(tuple(tensor.shape), tensor.dtype)
    down.fill_(poison)
    down.copy_(there, non_blocking=True)
    event = runtime.new_event()
    event.record()
    there.fill_(poison)  # enqueued behind the copy, which must not see it
    event.synchronize()
    return {"there and back": down.clone(), "overwritten after it": there.cpu()}


@procedure("memory.peak")
def peak(session: Session, num_bytes: int) -> dict[str, int]:
    """Peaks around one allocation."""
    runtime = session.runtime
    settle(session)
    runtime.reset_peak_memory()
    before = runtime.peak_memory_bytes()
    hold(session, "memory.peak", num_bytes)
    during = runtime.peak_memory_bytes()
    drop(session, "memory.peak")
    after = runtime.peak_memory_bytes()
    runtime.reset_peak_memory()
    return {
        "before": before,
        "during": during,
        "after": after,
        "reset": runtime.peak_memory_bytes(),
    }


@procedure("memory.far_rows")
def far_rows(session: Session, num_rows: int, width: int) -> dict[str, torch.Tensor]:
    """Rows near both ends of a table, as every implementation of ``embedding`` reads them.

    Row ``r`` holds ``r % 251`` in its first half and ``r // 251`` in the rest.

    Returns:
        Implementation → ``[4, width]``, float16.
    """
    device = session.device
    numbers = torch.arange(num_rows, device=device)
    halves = (numbers % 251, torch.div(numbers, 251, rounding_mode="floor"))
    ids = torch.tensor([0, 1, num_rows - 2, num_rows - 1]).to(device)
    sizes = {"vocab_size": num_rows, "hidden_size": width, "dtype": "float16"}
    with torch.device("meta"):
        outline = made_op(session, "embedding", sizes)
    found = {}
    for name in ("native", *choose(session, outline, "float16").holding):
        op: Any = bound_op(session, "embedding", sizes, {}, "float16", name)
        for index, half in enumerate(halves):
            columns = slice(index * width // 2, (index + 1) * width // 2)
            op.weight[:, columns] = half.to(torch.float16)[:, None]
        found[name] = op(ids).cpu()
    return found


def settle(session: Session) -> None:
    """Finish all work and give unused memory back."""
    _ = session.device
    gc.collect()
    session.runtime.synchronize()
    session.runtime.empty_cache()


def _device(session: Session, device_index: int | None) -> torch.device:
    own = session.device
    return own if device_index is None else session.runtime.torch_device(device_index)


def _is_pinned(tensor: torch.Tensor) -> bool:
    try:
        return bool(tensor.is_pinned())
    except RuntimeError:
        return False
