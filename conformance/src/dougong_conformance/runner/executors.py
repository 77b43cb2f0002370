"""Executors: processes with the plugin, started and ended by whoever owns them."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from dougong_conformance.outcomes import Outcome
from dougong_conformance.runner.environment import module_command
from dougong_conformance.runner.limits import Limits
from dougong_conformance.runner.processes import Child, how_it_ended, last_lines, start_child
from dougong_conformance.runner.template import Template, is_read_at_start

_MODULE = "dougong_conformance.runner.executor_main"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorOrder:
    """What a new executor is told.

    Attributes:
        environment: Variables beside the common ones; an empty text unsets nothing, it is a value.
        device_index: Device of its session.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    device_index: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "environment": dict(self.environment)}


@dataclass(frozen=True, slots=True)
class Loss:
    """Why an executor is gone, as its owner found it."""

    reason: str
    outcome: Outcome
    log: str


class Executors(Protocol):
    """Starts executors and knows what became of them."""

    def start(self, order: ExecutorOrder) -> tuple[int, socket.socket]:
        """Start one; returns its number and the connection to it."""
        ...

    def why(self, number: int, because: str = "", outcome: Outcome = Outcome.CRASH) -> Loss:
        """Make sure that one is gone, and say why.

        Args:
            number: Of the executor.
            because: Why it is to be ended now; empty: it seems to have ended by itself.
            outcome: What follows from ``because``.
        """
        ...

    def kill(self, number: int) -> None:
        """End one at once."""
        ...

    def end(self, number: int) -> None:
        """One is needed no more; its connection is closed already."""
        ...


@dataclass
class _Running:
    child: Child
    connection: socket.socket  # a second handle: shut where a grandchild holds the other end open
    is_killed: bool = False  # because a check asked for it


class OwnExecutors:
    """Executors that this process starts itself.

    Args:
        plugin: Name of the plugin under test.
        environment: Of every executor.
        folder: For logs; it is there.
        limits: Deadlines.
        import_path: Folder that holds a plugin which is not installed; empty: none.
        extension: Folder with checks and procedures beyond the suite's; empty: none.
        template: Gives that of another owner, asked at need; ``None``: one of its own.
    """

    def __init__(
        self,
        plugin: str,
        environment: Mapping[str, str],
        folder: Path,
        limits: Limits,
        *,
        import_path: str = "",
        extension: str = "",
        template: Callable[[], Template] | None = None,
    ) -> None:
        self._plugin = plugin
        self._environment = dict(environment)
        self._import_path = import_path
        if import_path:
            self._environment["PYTHONPATH"] = import_path
        self._folder = folder
        self._limits = limits
        self._extension = extension
        self._running: dict[int, _Running] = {}
        self._started = 0
        self._template: Template | None = None
        self._get_template = template

    def prepare(self) -> None:
        """Begin what the first start needs, and come back at once."""
        if self._template is None:
            get = self._get_template
            self._template = get() if get else Template(self._folder, self._extension)

    def start(self, order: ExecutorOrder) -> tuple[int, socket.socket]:
        """A copy of the template, or a process of its own where that cannot be."""
        self._started += 1
        number, log = self._started, self._folder / self.log_name(self._started)
        ours, theirs = socket.socketpair()
        told = {
            "plugin": self._plugin,
            "device_index": order.device_index,
            "environment": {**self._environment, **order.environment},
            "import_path": self._import_path,
            "extension": self._extension,
        }
        with theirs:
            child = None
            if not is_read_at_start(order.environment):
                child = self._copy(told, theirs.fileno(), log)
            if child is None:
                child = self._start_alone(told, theirs.fileno(), log)
        self._running[number] = _Running(child, ours.dup())
        return number, ours

    def _copy(self, told: dict[str, Any], connection: int, log: Path) -> Child | None:
        self.prepare()
        return self._template.copy(told, connection, log) if self._template else None

    def _start_alone(self, told: dict[str, Any], connection: int, log: Path) -> Child:
        return start_child(
            module_command(_MODULE, [json.dumps({**told, "connection": connection})]),
            told["environment"],
            log,
            (connection,),
            self._folder,
        )

    @staticmethod
    def log_name(number: int) -> str:
        """File name of an executor's log."""
        return f"executor-{number}.log"

    def why(self, number: int, because: str = "", outcome: Outcome = Outcome.CRASH) -> Loss:
        """Wait for its end, or bring it about."""
        one = self._running.get(number)
        if one is None:
            return Loss("its process was ended before", Outcome.CRASH, self.log_name(number))
        if because:
            one.child.end(self._limits.term_s)
            reason = f"{because}; its process was ended"
        else:
            reason = f"its process {self._end_of(one)}"
        self._forget(number)
        tail = last_lines(one.child.log)
        printed = f"; it printed last: {tail}" if tail else "; it printed nothing"
        return Loss(reason + printed, outcome, one.child.log.name)

    def _end_of(self, one: _Running) -> str:
        code = one.child.wait(self._limits.term_s)
        if code is None:
            return "closed the connection and lived on"
        hint = " (not by this suite: was memory short?)" if code == -9 and not one.is_killed else ""
        return f"{how_it_ended(code)} during a call{hint}"

    def kill(self, number: int) -> None:
        """SIGKILL."""
        one = self._running.get(number)
        if one is not None:
            one.is_killed = True
            one.child.kill()
            shut(one.connection)

    def end(self, number: int) -> None:
        """It leaves by itself when its connection closes; whoever does not is killed."""
        one = self._running.get(number)
        if one is not None:
            shut(one.connection)
            one.child.wait(1.0)
            self._forget(number)

    def close(self) -> None:
        """End all."""
        for one in self._running.values():
            shut(one.connection)
        for number in list(self._running):
            self.end(number)
        if self._template is not None and self._get_template is None:
            self._template.close()
        self._template = None

    def watch(self) -> None:
        """Shut the connections of those that ended, and cut what prints without end."""
        for one in self._running.values():
            one.child.cut_log(self._limits.log_max_bytes)
            if one.child.code() is not None:
                shut(one.connection)

    def handles(self) -> dict[int, int]:
        """Number → a descriptor that can be read when that executor has ended; caller closes."""
        found = {}
        for number, one in self._running.items():
            try:
                found[number] = os.pidfd_open(one.child.pid)
            except OSError:
                continue
        return found

    def _forget(self, number: int) -> None:
        one = self._running.pop(number)
        one.child.kill()
        shut(one.connection)
        one.connection.close()


def shut(connection: socket.socket) -> None:
    """Let the other holder of this connection see its end."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
