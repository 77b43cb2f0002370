"""One rank's part in a script of collectives: it makes its groups, calls, and hands all over.

Every rank goes on to the end whatever it gets, so that a wrong number on one of them does not look
like a lost peer on the others. What a rank gets is judged elsewhere.
"""

from __future__ import annotations

import importlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from dougong.contracts import Communicator, DeadlinePhase, GroupKind, GroupOptions

from dougong_conformance.local import as_raised
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session

Step = Mapping[str, Any]
Record = dict[str, Any]


@procedure("communicator.dtypes")
def dtypes(session: Session, ops: Sequence[str]) -> dict[str, list[str]]:
    """What each op takes, as a group of one says."""
    with _Part(session, f"dtypes-{os.getpid()}-{threading.get_ident()}", 0, {"alone": [0]}) as part:
        return {op: sorted(part.groups["alone"].supported_dtypes(op)) for op in ops}


@procedure("communicator.run")
def run(
    session: Session,
    meeting: str,
    rank: int,
    groups: Mapping[str, Sequence[int]],
    steps: Sequence[Step],
    deadlines_s: Mapping[str, float] | None = None,
) -> list[Record]:
    """Run a script.

    Args:
        session: Of this rank.
        meeting: Unlike that of any other script.
        rank: This one.
        groups: Name → its ranks. Every rank makes those it is in, in this order.
        steps: What to do, in order: ``do`` (a method of the communicator, or of `_Part`),
            ``group``, ``tensor`` (its first argument, moved to the device; a dict makes one that is
            not contiguous), ``arguments`` (the others), ``after`` (multiply the result by this,
            with no wait between), ``is_read`` (wait for the device and read the result at once;
            else at the end).
        deadlines_s: By phase.

    Returns:
        One record per step: ``value``, ``given`` (the first argument afterwards), ``raised``,
        ``began_s`` and ``ended_s`` (on the machine's monotonic clock).
    """
    with _Part(session, meeting, rank, groups, deadlines_s) as part:
        return part.play(steps)


class _Part:
    def __init__(
        self,
        session: Session,
        meeting: str,
        rank: int,
        groups: Mapping[str, Sequence[int]],
        deadlines_s: Mapping[str, float] | None = None,
    ) -> None:
        self._session, self._rank = session, rank
        self._device = session.device
        self._timers: list[threading.Timer] = []
        self.groups: dict[str, Communicator] = {}
        platform = session.platform
        module, _, cls = platform.get_device_communicator_cls().partition(":")
        communicator_cls = getattr(importlib.import_module(module), cls)
        for name, ranks in groups.items():
            if rank not in ranks:
                continue
            options = GroupOptions(
                kind=GroupKind.TENSOR,
                ranks=tuple(ranks),
                rank=rank,
                init_method=_meeting_place(meeting, name).as_uri(),
                deadlines_s={
                    DeadlinePhase(phase): seconds for phase, seconds in (deadlines_s or {}).items()
                },
                options={"backend": platform.dist_backend} if platform.dist_backend else {},
            )
            self.groups[name] = communicator_cls(options, self._device)

    def __enter__(self) -> _Part:
        return self

    def __exit__(self, *exc: object) -> None:
        for timer in self._timers:
            timer.cancel()
        for group in self.groups.values():
            group.destroy()

    def play(self, steps: Sequence[Step]) -> list[Record]:
        with self._session.runtime.inference_mode():
            played = [self._play_one(step) for step in steps]
            return [self._read(record, group) for record, group in played]

    def _play_one(self, step: Step) -> tuple[Record, Communicator | None]:
        group = self.groups.get(step.get("group", ""))
        record: Record = {"began_s": time.monotonic()}
        try:
            self._act(step, group, record)
            if step.get("is_read"):
                self._session.runtime.synchronize()
        except Exception as exc:  # noqa: BLE001 - the plugin's; handed over as data
            record["raised"] = self._named(exc, group)
        record["ended_s"] = time.monotonic()
        return record, group

    def _act(self, step: Step, group: Communicator | None, record: Record) -> None:
        own = getattr(self, f"_do_{step['do']}", None)
        if own is not None:
            own(group, **step.get("arguments", {}))
            return
        if group is None:
            return  # this rank is not in the group
        arguments = [] if step.get("tensor") is None else [self._placed(step["tensor"])]
        record["given"] = arguments[0] if arguments else None
        others = dict(step.get("arguments", {}))
        if "dtype" in others:
            others["dtype"] = getattr(torch, others["dtype"])
        record["value"] = getattr(group, step["do"])(*arguments, **others)
        if step.get("after") is not None:
            record["value"] = record["value"] * step["after"]

    def _placed(self, given: Any) -> torch.Tensor:
        if isinstance(given, torch.Tensor):
            return torch.empty(given.shape, dtype=given.dtype, device=self._device).copy_(given)
        there = self._placed(given["base"])
        return there.transpose(*given["transposed"])

    def _read(self, record: Record, group: Communicator | None) -> Record:
        for name in ("value", "given"):
            if isinstance(tensor := record.get(name), torch.Tensor):
                try:
                    record[name] = tensor.cpu()
                except Exception as exc:  # noqa: BLE001 - the device's late error
                    record.setdefault("raised", self._named(exc, group))
                    record[name] = None
        return record

    def _named(self, exc: Exception, group: Communicator | None) -> dict[str, Any]:
        """An exception in the core's terms: as it is, as the group or as the platform names it."""
        named: BaseException | None = None if group is None else group.explain(exc)
        if named is None:
            fault = self._session.platform.classify_error(exc)
            named = exc if fault is None else fault.kind(fault.message)
        raised = as_raised(named)
        return {"kind": raised.kind, "kinds": list(raised.kinds), "message": raised.message}

    def _do_sleep(self, group: Communicator | None, seconds: float) -> None:
        time.sleep(seconds)

    def _do_die(self, group: Communicator | None, seconds: float = 0.0) -> None:
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    def _do_phase(self, group: Communicator | None, phase: str) -> None:
        if group is not None:
            group.set_phase(DeadlinePhase(phase))

    def _do_abort_later(self, group: Communicator | None, seconds: float) -> None:
        if group is not None:
            timer = threading.Timer(seconds, group.abort)
            self._timers.append(timer)
            timer.start()


def _meeting_place(meeting: str, name: str) -> Path:
    return Path(tempfile.gettempdir(), f"dougong-conform-{meeting}-{name}")
