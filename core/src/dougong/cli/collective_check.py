"""One collective between two ranks, each in a short-lived process of its own.

Two, because a communicator that does nothing is right in a group of one. Where the platform has one
device they share it; not every vendor's library allows that, so a group of one is tried then, and
the result says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dougong.cli.op_check import relative_error
from dougong.contracts.communicator import Communicator, GroupKind, GroupOptions
from dougong.platforms import (
    Handover,
    LoadedPlatform,
    check_runtime,
    hand_over,
    join_parent,
    load_class,
)
from dougong.platforms.short_lived import ChildFailed, answer_parent, ask_child

_SIZE = 16  # small integers: their sum is exact in every dtype
# The process alone is bounded: a communicator may refuse a deadline below its vendor's timeout.
_TIMEOUT_S = 60.0
_PREFERRED = "float32"


def check_collective(loaded: LoadedPlatform, index: int) -> tuple[float, str]:
    """All-reduce on device ``index``: relative error, and between how many ranks.

    Raises:
        ChildFailed: A rank failed; the message says how.
    """
    others = [other for other in loaded.selection.device_indices if other != index]
    if others:
        pair = (index, others[0])
        return _ask_ranks(loaded, pair), f"2 ranks on devices {pair[0]} and {pair[1]}"
    try:
        return _ask_ranks(loaded, (index, index)), "2 ranks on one device"
    except ChildFailed as failed:
        error = _ask_ranks(loaded, (index,))
        return error, f"1 rank, which proves little: 2 on one device failed: {failed.reason}"


def _ask_ranks(loaded: LoadedPlatform, devices: Sequence[int]) -> float:
    """The largest error of all ranks."""
    handover, size = asdict(hand_over(loaded)), len(devices)
    environments = [_rank_environment(loaded, rank, size) for rank in range(size)]
    with (
        tempfile.TemporaryDirectory(prefix="dougong-") as folder,
        ThreadPoolExecutor(len(devices)) as pool,
    ):
        questions = [
            {"handover": handover, "devices": list(devices), "rank": rank, "folder": folder}
            for rank in range(size)
        ]
        answers = list(pool.map(_ask_rank, questions, environments))
    if failures := [answer["failure"] for answer in answers if answer["failure"]]:
        raise ChildFailed("; ".join(dict.fromkeys(failures)))
    return max(float(answer["error"]) for answer in answers)


def _rank_environment(loaded: LoadedPlatform, rank: int, size: int) -> dict[str, str]:
    """What the communicator declares for a rank's process; the rank itself tells of what fails."""
    try:
        target = loaded.platform.get_device_communicator_cls()
        communicator_cls = load_class(target, Communicator, loaded.selection.row)
        return dict(communicator_cls.rank_environment(rank, size))
    except Exception:  # noqa: BLE001 - third-party code; the rank meets it again and is asked why
        return {}


def _ask_rank(question: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = ask_child(__name__, question, _TIMEOUT_S, environment=environment)
    except ChildFailed as failed:
        return {"failure": failed.reason}
    return answer


def run_rank(loaded: LoadedPlatform, devices: Sequence[int], rank: int, folder: Path) -> float:
    """One rank's part: rank ``r`` gives ``r + 1`` times the numbers from 1."""
    import torch

    platform, index = loaded.platform, devices[rank]
    target = platform.get_device_communicator_cls()
    communicator_cls = load_class(target, Communicator, loaded.selection.row)
    runtime = check_runtime(platform, loaded.selection.row)
    runtime.set_device(index)
    platform.import_kernels()
    device = runtime.torch_device(index)
    given = torch.arange(1, _SIZE + 1).to(_dtype(loaded, index))
    options = GroupOptions(
        kind=GroupKind.TENSOR,
        ranks=tuple(range(len(devices))),
        rank=rank,
        init_method=Path(folder, "rendezvous").as_uri(),
        options={"backend": platform.dist_backend} if platform.dist_backend else {},
    )
    communicator = communicator_cls(options, device)
    try:
        found = communicator.all_reduce((given * (rank + 1)).to(device))
        runtime.synchronize()
    finally:
        communicator.destroy()
    return relative_error(found, given.double() * sum(range(1, len(devices) + 1)))


def _dtype(loaded: LoadedPlatform, index: int) -> Any:
    import torch

    arch = next(device.arch for device in loaded.selection.devices if device.index == index)
    claims = loaded.platform.claims(arch)
    claimed = claims.collective_dtypes or claims.dtypes
    return getattr(torch, _PREFERRED if _PREFERRED in claimed else claimed[0])


def _answer(question: Any) -> object:
    try:
        loaded = join_parent(Handover.from_json(question["handover"]))
        devices, rank, folder = (question[key] for key in ("devices", "rank", "folder"))
        error = run_rank(loaded, devices, rank, Path(folder))
    except Exception as exc:  # noqa: BLE001 - third-party code; the reason is kept and shown
        return {"failure": f"{type(exc).__name__}: {exc}"}
    return {"failure": "", "error": error}


if __name__ == "__main__":
    answer_parent(_answer)
