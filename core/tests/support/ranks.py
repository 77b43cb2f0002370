"""Ranks of one group as threads of this process: fast, and right for all but a rank's death."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch

from dougong.contracts import DeadlinePhase, GroupKind, GroupOptions
from dougong.reference import TorchCommunicator

T = TypeVar("T")
PATIENT_S = 60.0  # for what should be done at once: a machine under load is no failure


def group_options(
    rank: int,
    ranks: tuple[int, ...],
    meeting: Path,
    *,
    kind: GroupKind = GroupKind.TENSOR,
    serve_s: float = PATIENT_S,
    load_s: float = PATIENT_S,
    options: Mapping[str, Any] | None = None,
) -> GroupOptions:
    return GroupOptions(
        kind=kind,
        ranks=ranks,
        rank=rank,
        init_method=meeting.as_uri(),
        deadlines_s={DeadlinePhase.LOAD: load_s, DeadlinePhase.SERVE: serve_s},
        options=options or {},
    )


def in_threads(ranks: tuple[int, ...], work: Callable[[int], T]) -> list[T]:
    """Each rank's answer; when all have ended, a rank's error is raised, of its own if possible."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        futures = [pool.submit(work, rank) for rank in ranks]
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]


def run_group(
    folder: Path, size: int, work: Callable[[TorchCommunicator], T], **how: Any
) -> list[T]:
    """Each rank's answer, of a group over all of them that all have joined before ``work``."""
    ranks = tuple(range(size))
    all_have_joined = threading.Barrier(size)

    def main(rank: int) -> T:
        options = group_options(rank, ranks, folder / "meeting", **how)
        group = TorchCommunicator(options, torch.device("cpu"))
        try:
            # A rank that knows that all are there is ahead of the others, whose join would fail
            # with what it breaks next.
            all_have_joined.wait(PATIENT_S)
            return work(group)
        finally:
            group.destroy()

    return in_threads(ranks, main)
