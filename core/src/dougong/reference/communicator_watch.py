"""The one thread of a group that waits for what nobody else waits for: deadlines and deaths."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from typing import Any

from dougong.contracts import CommunicatorTimeout, DeadlinePhase, DeviceError, PeerLost
from dougong.reference.communicator_group import Group, kind_of
from dougong.reference.communicator_links import Message, PeerLink

_TICK_S = 0.1
_POLL_S = 0.001
_GRACE_S = 1.0  # after a death, for the library's own error or for a call that needs no more of it
_ANSWER_S = 1.0  # for peers to say where they are
_KINDS = {kind.__name__: kind for kind in (CommunicatorTimeout, DeviceError, PeerLost)}


@dataclass(slots=True, eq=False)
class Call:
    """One call of a method, from its start until the device has finished it.

    Attributes:
        op: The method's name.
        peer: The other rank, for a send or receive; ``None``: all take part.
        number: How many collectives this rank had begun with it, itself included.
        phase: In which it began.
        limit_s: Seconds it may take.
        due: When it has taken them, on the monotonic clock.
        work: The library's handle, once there is one.
    """

    op: str
    peer: int | None
    number: int
    phase: DeadlinePhase
    limit_s: float
    due: float
    work: Any = None


@dataclass(slots=True, eq=False)
class _Inquiry:
    """One call that looks lost, and what is learnt about it before that becomes the failure.

    Attributes:
        call: The call.
        until: When to conclude with what is known, on the monotonic clock.
        kind: What the library called it; ``None``: only the deadline passed, the call may yet end.
        text: The library's words.
        answers: Rank → how many collectives it had begun, and the last one's name.
        done: Set with the conclusion.
    """

    call: Call
    until: float
    kind: type[DeviceError] | None = None
    text: str = ""
    answers: dict[int, tuple[int, str]] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)


class GroupWatch:
    """Deadlines, deaths and the one failure of a group.

    The first failure is the group's for good: whoever waits is let go with it, and every later call
    raises it. A failure found here is told to the peers, so that all ranks report the same one.

    Args:
        group: The group.
        links: To each peer.
    """

    def __init__(self, group: Group, links: dict[int, PeerLink]) -> None:
        self._group, self._links = group, links
        self._on_failure: Callable[[], None] = lambda: None
        self._lock = threading.RLock()
        self._calls: list[Call] = []
        self._number = 0
        self._last: Call | None = None  # of all ranks, not between two
        self._gone: dict[int, float] = {}
        self._left: dict[int, int] = {}  # who left in order, after how many collectives
        self._met: dict[int, int] = {}
        self._failure: tuple[type[DeviceError], str] | None = None
        self._inquiry: _Inquiry | None = None
        self._is_closed = False
        self._selector = selectors.DefaultSelector()
        self._bell, self._clapper = socket.socketpair()
        self._selector.register(self._clapper, selectors.EVENT_READ, None)
        for peer, link in links.items():
            self._selector.register(link.connection, selectors.EVENT_READ, peer)
        name = f"dougong watch {group.options.kind}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, on_failure: Callable[[], None]) -> None:
        """Begin to watch.

        Args:
            on_failure: Called once, on a thread of its own, when the group has failed.
        """
        self._on_failure = on_failure
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        """Whether every call raises from now on."""
        return self._failure is not None

    @property
    def failure(self) -> DeviceError | None:
        """What every call raises from now on; a new object each time, for each thread's own."""
        if self._failure is None:
            return None
        kind, message = self._failure
        return self._group.error(kind, message)

    def check(self) -> None:
        """Raise the failure, if there is one."""
        if (failure := self.failure) is not None:
            raise failure

    def begin(self, op: str, peer: int | None, phase: DeadlinePhase, limit_s: float) -> Call:
        """Count a call and start its clock."""
        with self._lock:
            self.check()
            absent = [rank for rank, number in self._left.items() if number <= self._number]
            if peer is None and absent:
                raise self._group.error(PeerLost, self._has_left(op, absent))
            self._number += peer is None
            due = time.monotonic() + limit_s
            call = Call(op, peer, self._number, phase, limit_s, due)
            self._last = call if peer is None else self._last
            self._forget_finished()
            self._calls.append(call)
            return call

    def end(self, call: Call) -> None:
        """The call is over, however it ended."""
        with self._lock:
            if call in self._calls:
                self._calls.remove(call)

    def meet(self, call: Call) -> None:
        """Block the host until every rank is at ``call`` or past it."""
        self._tell({"met": call.number})
        while missing := {peer for peer in self._links if self._met.get(peer, 0) < call.number}:
            self.check()
            if gone := missing & self._left.keys():
                raise self._group.error(PeerLost, self._has_left(call.op, gone))
            time.sleep(_POLL_S)

    def is_over(self, call: Call) -> bool:
        """Whether the device has finished ``call``."""
        with self._lock:
            self._forget_finished()
            return call not in self._calls

    def is_alone(self, call: Call) -> bool:
        """Whether no other call is unfinished."""
        with self._lock:
            self._forget_finished()
            return self._calls == [call]

    def fail(self, kind: type[DeviceError], message: str, *, is_told: bool = True) -> None:
        """Make it the group's failure, unless there is one already.

        Args:
            kind: What the calls raise.
            message: Of the error.
            is_told: The peers hear of it.
        """
        with self._lock:
            if self._failure is not None or self._is_closed:
                return
            self._failure = (kind, message)
        if is_told:
            self._tell({"failed": kind.__name__, "why": message})
        threading.Thread(target=self._on_failure, name="dougong abort", daemon=True).start()

    def fail_call(self, call: Call, exc: BaseException) -> None:
        """Make the library's exception the group's failure, with the ranks at fault.

        Nothing happens where the library speaks neither of time nor of a connection.
        """
        kind = kind_of(exc)
        if kind is not None and not self.has_failed:
            self._inquire(call, kind, str(exc).splitlines()[0]).done.wait(2 * _ANSWER_S)

    def explain(self) -> DeviceError | None:
        """The failure behind an error that the device has raised, if a call of this group is.

        Told by the calls that failed, not by the error's words: a process has several groups.
        """
        with self._lock:
            self._forget_finished()
            inquiry = self._inquiry
        if inquiry is not None and not self.has_failed:
            inquiry.done.wait(2 * _ANSWER_S)
        until = time.monotonic() + 2 * _GRACE_S
        while self._gone and not self.has_failed and time.monotonic() < until:
            time.sleep(_TICK_S / 10)
        return self.failure

    def close(self) -> None:
        """Tell the peers that this rank leaves in order, and end the thread."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._failure is None and any(call.work is None for call in self._calls):
                # Another thread waits in a call: nobody else would let it go.
                self._failure = (PeerLost, f"{self._group.name} was destroyed during a call")
        self._tell({"left": self._number})
        self._bell.send(b"!")
        self._thread.join()
        self._selector.close()
        self._bell.close()
        self._clapper.close()
        for link in self._links.values():
            link.close()

    def _tell(self, message: Message) -> None:
        for link in self._links.values():
            link.send(message)

    def _run(self) -> None:
        try:
            self._watch_until_closed()
        except Exception as exc:  # noqa: BLE001 - without a watch no call has a deadline
            why = f"the watch of {self._group.name} ended with {type(exc).__name__}: {exc}"
            self.fail(DeviceError, f"{why}; start the group anew")

    def _watch_until_closed(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select(_TICK_S):
                if key.data is None:
                    self._clapper.recv(64)
                else:
                    self._read(key.data)
            self._look()

    def _read(self, peer: int) -> None:
        messages = self._links[peer].receive()
        if messages is None:
            self._selector.unregister(self._links[peer].connection)
            if peer not in self._left:
                self._gone[peer] = time.monotonic()
            return
        for message in messages:
            self._hear(peer, message)

    def _hear(self, peer: int, message: Message) -> None:
        if "left" in message:
            with self._lock:  # `begin` walks through them
                self._left[peer] = message["left"]
        elif "met" in message:
            self._met[peer] = message["met"]
        elif "failed" in message:
            kind = _KINDS.get(message["failed"], DeviceError)
            told = f"{message['why']} (told by {self._group.members([peer])})"
            self.fail(kind, told, is_told=False)
        elif "where" in message:
            last = "none" if self._last is None else self._last.op
            self._links[peer].send({"at": self._number, "op": last})
        elif "at" in message and self._inquiry is not None:
            self._inquiry.answers[peer] = (message["at"], message["op"])

    def _look(self) -> None:
        """Once a tick, and whenever something was heard."""
        now = time.monotonic()
        with self._lock:
            self._forget_finished()
            overdue = next((call for call in self._calls if call.due < now), None)
            is_idle = not self._calls
        if self._inquiry is not None:
            self._conclude(self._inquiry, now)
        elif overdue is not None and not self.has_failed:
            self._inquire(overdue)
        dead = [rank for rank, since in self._gone.items() if is_idle or now - since >= _GRACE_S]
        if dead:
            self.fail(PeerLost, self._died(dead), is_told=False)  # each rank sees it by itself

    def _inquire(
        self, call: Call, kind: type[DeviceError] | None = None, text: str = ""
    ) -> _Inquiry:
        with self._lock:
            if self._inquiry is None:
                self._inquiry = _Inquiry(call, time.monotonic() + _ANSWER_S)
                self._tell({"where": True})
            if kind is not None:
                self._inquiry.call, self._inquiry.kind, self._inquiry.text = call, kind, text
            return self._inquiry

    def _conclude(self, inquiry: _Inquiry, now: float) -> None:
        absent = self._gone.keys() | self._left.keys()
        is_known = inquiry.answers.keys() >= self._links.keys() - absent
        if inquiry.kind is PeerLost:
            is_known = bool(absent)
        if not is_known and now < inquiry.until:
            return
        self._inquiry = None
        if inquiry.kind is PeerLost:
            self.fail(PeerLost, self._cut_off(inquiry, absent))
        elif inquiry.kind is not None or inquiry.call in self._calls:
            self.fail(CommunicatorTimeout, self._overdue(inquiry, absent))
        inquiry.done.set()

    def _has_left(self, op: str, ranks: Iterable[int]) -> str:
        return f"{op} of {self._group.name} cannot run: {self._group.members(ranks)} left the group"

    def _died(self, dead: Iterable[int]) -> str:
        return (
            f"{self._group.members(dead)} of {self._group.name} died: its process or machine is "
            "gone; start the group anew"
        )

    def _cut_off(self, inquiry: _Inquiry, absent: Set[int]) -> str:
        who = f"{self._group.members(absent)} is gone" if absent else "a peer cannot be reached"
        return f"{inquiry.call.op} of {self._group.name} failed: {who} ({inquiry.text})"

    def _overdue(self, inquiry: _Inquiry, absent: Set[int]) -> str:
        call = inquiry.call
        limit = inquiry.text or f"its deadline of {call.limit_s:g} s passed"
        return (
            f"{call.op} (call {call.number}) of {self._group.name} did not complete in phase "
            f"{call.phase}: {limit}; {self._whereabouts(inquiry, absent)}"
        )

    def _whereabouts(self, inquiry: _Inquiry, absent: Set[int]) -> str:
        call, answers = inquiry.call, dict(inquiry.answers)
        if call.peer is not None:
            return f"{self._group.members([call.peer])} did not take its part"
        parts = [
            f"{self._group.members([peer])} has not called it (its last: {op}, call {number})"
            for peer, (number, op) in sorted(answers.items())
            if number < call.number
        ]
        if absent:
            parts.append(f"{self._group.members(absent)} is gone")
        if silent := self._links.keys() - answers.keys() - absent:
            parts.append(f"{self._group.members(silent)} answers nothing")
        return ", ".join(parts) or "every rank has called it"

    def _forget_finished(self) -> None:
        """Drop calls that the device has finished; one that it failed at is looked into."""
        for call in [call for call in self._calls if call.work is not None]:
            try:
                if not call.work.is_completed():
                    continue
                call.work.wait()  # it is over: this only raises what it failed with
            except Exception as exc:  # noqa: BLE001 - the vendor's; it is the call's failure
                if (kind := kind_of(exc)) is not None and not self.has_failed:
                    self._inquire(call, kind, str(exc).splitlines()[0])
            self._calls.remove(call)
