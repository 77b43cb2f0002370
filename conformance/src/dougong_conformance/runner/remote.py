"""Subject in other processes: calls cross a connection, and a lost process is an answer too."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

from dougong_conformance.outcomes import Outcome, SubjectLost
from dougong_conformance.runner import frames
from dougong_conformance.runner.clock import CaseClock
from dougong_conformance.runner.executors import ExecutorOrder, Executors
from dougong_conformance.runner.limits import Limits
from dougong_conformance.runner.ranks import RankPool
from dougong_conformance.subject import Facts, Raised, Ranks, Subject, SubjectRaised


class SuiteFault(Exception):
    """A check and its procedure do not fit together: no fault of the plugin."""


class Link:
    """One executor, as seen by the process that calls it.

    Args:
        executors: Who starts it.
        order: How.
        limits: Deadlines.
    """

    def __init__(self, executors: Executors, order: ExecutorOrder, limits: Limits) -> None:
        self._executors = executors
        self._limits = limits
        self._calls = 0
        self._lost: SubjectLost | None = None
        self.number, self.connection = executors.start(order)
        self.log = ""
        self._is_ready = False
        self._began = time.monotonic()

    def call(self, procedure: str, arguments: Mapping[str, Any], timeout_s: float) -> Any:
        """One round trip; start-up has a deadline of its own and is not counted.

        Raises:
            SubjectRaised: The procedure raised.
            SubjectLost: The process is gone.
            SuiteFault: There is no such procedure, or it returned what may not cross.
        """
        self.begin(procedure, arguments)
        return self.finish(procedure, time.monotonic() + timeout_s)

    def start_up(self) -> None:
        """Wait until it can take calls."""
        if not self._is_ready:
            self._receive(time.monotonic() + self._limits.start_s, "its start")
            self._is_ready = True

    def begin(self, procedure: str, arguments: Mapping[str, Any]) -> None:
        """Send a call; `finish` takes its answer."""
        if self._lost is not None:
            raise self._lost
        self.start_up()
        self._calls += 1
        self._began = time.monotonic()
        call = {"number": self._calls, "procedure": procedure, "arguments": dict(arguments)}
        try:
            frames.send(self.connection, call)
        except frames.ConnectionEnded:
            raise self._lose() from None

    def finish(self, procedure: str, deadline: float) -> Any:
        """Wait for the answer to the last call."""
        answer = self._receive(deadline, procedure)
        if "suite" in answer:
            raise SuiteFault(str(answer["suite"]))
        if isinstance(answer.get("raised"), Raised):
            raise SubjectRaised(answer["raised"])
        return answer.get("value")

    def kill(self) -> None:
        """End its process at once."""
        self._executors.kill(self.number)

    def close(self) -> None:
        """It is needed no more."""
        self.connection.close()
        if self._lost is None:
            self._executors.end(self.number)
            self._lost = SubjectLost("its process was ended with the check that made it")

    @property
    def is_lost(self) -> bool:
        """It takes no more calls."""
        return self._lost is not None

    def _receive(self, deadline: float, what: str) -> dict[str, Any]:
        try:
            answer = frames.receive(self.connection, deadline)
        except frames.DeadlinePassed:
            waited = time.monotonic() - self._began
            because = f"no answer to {what} within {waited:.0f} s"
            raise self._lose(because, Outcome.TIMEOUT) from None
        except frames.ConnectionEnded:
            raise self._lose() from None
        except frames.FrameError as exc:
            raise self._lose(f"it sent what is no answer ({exc})") from None
        if not isinstance(answer, dict) or answer.get("to") != self._calls:
            raise self._lose("it sent an answer that nobody asked for")
        return answer

    def _lose(self, because: str = "", outcome: Outcome = Outcome.CRASH) -> SubjectLost:
        if self._lost is None:
            self.connection.close()
            loss = self._executors.why(self.number, because, outcome)
            self.log = loss.log
            self._lost = SubjectLost(loss.reason, loss.outcome)
        return self._lost


class RemoteSubject:
    """The plugin in an executor; another one takes its place when that is gone.

    Args:
        executors: Who starts them.
        limits: Deadlines.
        clock: Of the case that runs; shared with the processes that it starts.
        order: For its own executor.
        pool: Ranks that checks share; ``None``: made at need.
    """

    def __init__(
        self,
        executors: Executors,
        limits: Limits,
        *,
        clock: CaseClock | None = None,
        order: ExecutorOrder | None = None,
        pool: RankPool | None = None,
    ) -> None:
        self._executors = executors
        self._limits = limits
        self._clock = clock or CaseClock(limits)
        self._order = order or ExecutorOrder()
        self._pool = pool
        self._link: Link | None = None
        self._facts: Facts | None = None
        self._fresh: list[RemoteSubject] = []

    @property
    def clock(self) -> CaseClock:
        """Of the case that runs."""
        return self._clock

    @property
    def facts(self) -> Facts:
        """Asked for once."""
        if self._facts is None:
            self._facts = Facts(**self.call("facts.describe"))
        return self._facts

    def call(self, procedure: str, /, **arguments: Any) -> Any:
        """Cross over and come back."""
        link = self._opened()
        with self._clock.starting():
            link.start_up()
        with self._clock.calling(procedure, arguments) as left_s:
            return link.call(procedure, arguments, left_s)

    def fresh(self, environment: Mapping[str, str] | None = None) -> Subject:
        """Another executor; that its plugin does not load shows at its first call."""
        order = ExecutorOrder(
            environment={**self._order.environment, **(environment or {})},
            device_index=self._order.device_index,
        )
        other = RemoteSubject(self._executors, self._limits, clock=self._clock, order=order)
        self._fresh.append(other)
        return cast("Subject", other)

    def ranks(self, size: int, *, can_be_killed: bool = False) -> Ranks:
        """Of the shared pool."""
        if self._pool is None:
            self._pool = RankPool(self._executors, self._limits, self._clock)
        return self._pool.of(self, size)

    @property
    def is_lost(self) -> bool:
        """Its executor is gone; the next call would start another."""
        return self._link is not None and self._link.is_lost

    @property
    def log(self) -> str:
        """Name of the log of its executor."""
        return f"executor-{self._link.number}.log" if self._link else ""

    def renew(self) -> None:
        """Let the executor go; the next call starts another."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def end_of_case(self) -> None:
        """End what a check started; replace what it lost."""
        for other in self._fresh:
            other.close()
        self._fresh.clear()
        if self._pool is not None:
            self._pool.tidy()
        if self.is_lost:
            self.renew()

    def close(self) -> None:
        """End everything."""
        for other in self._fresh:
            other.close()
        self._fresh.clear()
        if self._pool is not None:
            self._pool.close()
        self.renew()

    def _opened(self) -> Link:
        if self._link is None:
            with self._clock.starting():
                self._link = Link(self._executors, self._order, self._limits)
        return self._link
