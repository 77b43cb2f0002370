"""Ranks of one group as threads of this process: fast, and right for all but a rank's death."""

from __future__ import annotations

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
    """Each rank's answer; the first rank's error is raised when all have ended."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(work, ranks))


def run_group(
    folder: Path, size: int, work: Callable[[TorchCommunicator], T], **how: Any
) -> list[T]:
    """Each rank's answer, of a group over all of them."""
    ranks = tuple(range(size))

    def main(rank: int) -> T:
        options = group_options(rank, ranks, folder / "meeting", **how)
        group = TorchCommunicator(options, torch.device("cpu"))
        try:
            return work(group)
        finally:
            group.destroy()

    return in_threads(ranks, main)
