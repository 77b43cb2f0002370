"""Ranks as threads of this process, each on a device of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch
from dougong.contracts import DeadlinePhase, GroupKind, GroupOptions

from dougong_sim.communicator import SimCommunicator

T = TypeVar("T")
PATIENT_S = 60.0  # for what should be done at once: a machine under load is no failure


def group_options(
    rank: int,
    size: int,
    meeting: Path,
    *,
    serve_s: float = PATIENT_S,
    options: Mapping[str, Any] | None = None,
) -> GroupOptions:
    return GroupOptions(
        kind=GroupKind.TENSOR,
        ranks=tuple(range(size)),
        rank=rank,
        init_method=meeting.as_uri(),
        deadlines_s={DeadlinePhase.LOAD: PATIENT_S, DeadlinePhase.SERVE: serve_s},
        options=options or {},
    )


def run_group(folder: Path, size: int, work: Callable[[SimCommunicator], T], **how: Any) -> list[T]:
    """Each rank's answer, once all have joined; its device is the current one of its thread."""
    all_have_joined = threading.Barrier(size)

    def main(rank: int) -> T:
        device = torch.device("sim", rank)
        torch.accelerator.set_device_index(rank)
        group = SimCommunicator(group_options(rank, size, folder / "meeting", **how), device)
        try:
            # A rank that knows that all are there is ahead of the others, whose join would fail
            # with what it breaks next.
            all_have_joined.wait(PATIENT_S)
            return work(group)
        finally:
            group.destroy()

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(main, range(size)))


def synchronize(group: SimCommunicator) -> None:
    torch.accelerator.synchronize(group.device)
