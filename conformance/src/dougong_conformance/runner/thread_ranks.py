"""Ranks as threads of this process: for a plugin that was changed in memory, on the host.

Nothing can be killed here, and a rank that hangs keeps its thread until the process ends.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dougong_conformance.local import as_raised
from dougong_conformance.outcomes import NotRun, Outcome, SubjectLost
from dougong_conformance.procedures import run_procedure
from dougong_conformance.session import PluginUnderTest, Session
from dougong_conformance.subject import Ranks

_Call = tuple[str, Mapping[str, Any], "queue.SimpleQueue[Any]"]


class ThreadRanks:
    """One thread and one session per rank.

    Args:
        plugin: Under test; every rank has a session of its own with it.
        size: How many ranks.
        num_devices: Rank ``i`` gets device ``i`` modulo this.
    """

    def __init__(self, plugin: PluginUnderTest, size: int, num_devices: int = 1) -> None:
        self.is_whole = True
        self._calls: list[queue.SimpleQueue[_Call | None]] = []
        for rank in range(size):
            calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
            session = Session(plugin, device_index=rank % num_devices)
            name = f"rank {rank}"
            threading.Thread(target=_serve, args=(session, calls), name=name, daemon=True).start()
            self._calls.append(calls)

    @property
    def size(self) -> int:
        """How many."""
        return len(self._calls)

    def call_all(
        self, procedure: str, arguments: Sequence[Mapping[str, Any]], *, timeout_s: float = 25.0
    ) -> list[Any]:
        """One call per rank, all at once; see `Ranks`."""
        answers: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in self._calls]
        for calls, given, answer in zip(self._calls, arguments, answers, strict=True):
            calls.put((procedure, given, answer))
        deadline = time.monotonic() + timeout_s
        return [self._wait(answer, procedure, deadline, timeout_s) for answer in answers]

    def _wait(
        self, answer: queue.SimpleQueue[Any], procedure: str, deadline: float, timeout_s: float
    ) -> Any:
        try:
            return answer.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            self.is_whole = False
            reason = f"no answer to {procedure} within {timeout_s:g} s"
            return SubjectLost(reason, Outcome.TIMEOUT)

    def kill(self, rank: int) -> None:
        """A thread cannot be ended.

        Raises:
            NotRun: Always.
        """
        raise NotRun(f"rank {rank} is a thread, which nothing can end; processes are needed")

    def close(self) -> None:
        """Let the threads end when they are idle."""
        for calls in self._calls:
            calls.put(None)


def _serve(session: Session, calls: queue.SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        procedure, given, answer = call
        try:
            answer.put(run_procedure(session, procedure, dict(given)))
        except Exception as exc:  # noqa: BLE001 - third-party code; handed over as data
            answer.put(as_raised(exc))


def thread_ranks(plugin: PluginUnderTest, num_devices: int = 1) -> Callable[[int, bool], Ranks]:
    """For `LocalSubject`: groups by size, made once and used again until one rank hangs."""
    groups: dict[int, ThreadRanks] = {}

    def make(size: int, can_be_killed: bool) -> Ranks:
        if can_be_killed:
            raise NotRun("ranks that can be killed are processes, and this run has threads only")
        if size not in groups or not groups[size].is_whole:
            groups[size] = ThreadRanks(plugin, size, num_devices)
        return groups[size]

    return make
