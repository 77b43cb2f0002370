"""Several executors, one per rank: called at once, and each answer kept whatever it is."""

from __future__ import annotations

import selectors
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dougong_conformance.outcomes import NotRun, SubjectLost
from dougong_conformance.runner.clock import CaseClock
from dougong_conformance.runner.executors import ExecutorOrder, Executors
from dougong_conformance.runner.limits import RANKS_PER_DEVICE_CLAIM, Limits
from dougong_conformance.subject import SubjectRaised

if TYPE_CHECKING:
    from dougong_conformance.runner.remote import Link, RemoteSubject


GRACE_S = 12.0
"""What the others get when a rank ends that nobody killed: more than a lost peer may go unseen."""


class RankExecutors:
    """Executors of one group size, one per rank.

    Args:
        links: By rank.
        clock: Of the case that runs.
    """

    def __init__(self, links: Sequence[Link], clock: CaseClock) -> None:
        self._links = links
        self._clock = clock
        self._killed: set[int] = set()

    @property
    def size(self) -> int:
        """How many."""
        return len(self._links)

    @property
    def is_whole(self) -> bool:
        """None is lost."""
        return not self._killed and not any(link.is_lost for link in self._links)

    def kill(self, rank: int) -> None:
        """SIGKILL to one."""
        self._killed.add(rank)
        self._links[rank].kill()

    def call_all(
        self, procedure: str, arguments: Sequence[Mapping[str, Any]], *, timeout_s: float = 25.0
    ) -> list[Any]:
        """One call per rank, all at once.

        Raises:
            ValueError: There are not as many arguments as ranks.
            SuiteFault: A driver does not fit its check.
        """
        if len(arguments) != self.size:
            raise ValueError(f"{len(arguments)} arguments for {self.size} ranks")
        answers: list[Any] = [None] * self.size
        with self._clock.starting():
            for rank, link in enumerate(self._links):
                answers[rank] = _attempt(link.start_up)
        with self._clock.calling(procedure, arguments[0]):
            self._call(procedure, arguments, answers, time.monotonic() + timeout_s)
        return answers

    def _call(
        self,
        procedure: str,
        arguments: Sequence[Mapping[str, Any]],
        answers: list[Any],
        deadline: float,
    ) -> None:
        with selectors.DefaultSelector() as waiting:
            for rank, link in enumerate(self._links):
                if answers[rank] is None:
                    answers[rank] = _attempt(link.begin, procedure, arguments[rank])
                if answers[rank] is None:
                    waiting.register(link.connection, selectors.EVENT_READ, rank)
            while waiting.get_map():
                ready = waiting.select(max(0.0, deadline - time.monotonic()))
                late = list(waiting.get_map().values()) if not ready else []
                for key in late or [key for key, _ in ready]:
                    waiting.unregister(key.fileobj)
                    answer = _attempt(self._links[key.data].finish, procedure, deadline)
                    answers[key.data] = answer
                    if isinstance(answer, SubjectLost) and key.data not in self._killed:
                        deadline = min(deadline, time.monotonic() + GRACE_S)

    def close(self) -> None:
        """End all."""
        for link in self._links:
            link.close()


def _attempt(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except SubjectRaised as exc:
        return exc.raised
    except SubjectLost as exc:
        return exc


class RankPool:
    """Groups of executors by size, kept for later checks until one rank is lost.

    Args:
        executors: Who starts them.
        limits: Deadlines.
        clock: Of the case that runs.
    """

    def __init__(self, executors: Executors, limits: Limits, clock: CaseClock) -> None:
        self._executors = executors
        self._limits = limits
        self._clock = clock
        self._groups: dict[int, RankExecutors] = {}

    def of(self, subject: RemoteSubject, size: int) -> RankExecutors:
        """The group of one size.

        Raises:
            NotRun: The machine has too few devices.
        """
        self.tidy()
        if size not in self._groups:
            check_capacity(subject, size)
            self._groups[size] = self._start(subject, size)
        return self._groups[size]

    def tidy(self) -> None:
        """Let groups go that have lost a rank."""
        for size, group in list(self._groups.items()):
            if not group.is_whole:
                group.close()
                del self._groups[size]

    def close(self) -> None:
        """End all."""
        for group in self._groups.values():
            group.close()
        self._groups.clear()

    def _start(self, subject: RemoteSubject, size: int) -> RankExecutors:
        from dougong_conformance.runner.remote import Link

        environments = subject.call("ranks.environments", size=size)
        devices = max(1, subject.facts.num_devices)
        with self._clock.starting():
            links = [
                Link(
                    self._executors,
                    ExecutorOrder(environment=environment, device_index=rank % devices),
                    self._limits,
                )
                for rank, environment in enumerate(environments)
            ]
        return RankExecutors(links, self._clock)


def check_capacity(subject: RemoteSubject, size: int) -> None:
    """Refuse groups that the machine has no devices for; the host takes any number of ranks.

    Raises:
        NotRun: It has not enough.
    """
    facts = subject.facts
    if facts.device_type == "cpu":
        return
    limits = facts.claims.get("limits", {})
    per_device = int(limits.get(RANKS_PER_DEVICE_CLAIM, 1))
    if facts.num_devices * per_device < size:
        raise NotRun(
            f"{size} ranks are needed; {facts.num_devices} devices are here, each for {per_device}"
        )
