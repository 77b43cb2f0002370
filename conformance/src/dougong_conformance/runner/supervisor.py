"""The supervisor: starts the judge and executors, owns deadlines, and draws the verdict.

It imports neither torch nor the plugin, so that nothing of theirs can end or change it.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from dougong_conformance.results import Selection
from dougong_conformance.runner.control import answer_request
from dougong_conformance.runner.environment import clean_command, judge_environment
from dougong_conformance.runner.executors import OwnExecutors
from dougong_conformance.runner.processes import how_it_ended, last_lines, start_child
from dougong_conformance.runner.protocol import Setup, Told

EVENTS_FILE = "events.jsonl"
LOGS_FOLDER = "logs"
_TICK_S = 0.25


class Watcher(Protocol):
    """Whoever shows a run while it lasts."""

    def event(self, event: dict[str, Any], told: Told) -> None:
        """The judge told something; ``told`` holds it already."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """What to run.

    Attributes:
        plugin: Name of the plugin.
        environment: Of the plugin's processes.
        folder: For events and logs.
        setup: For the judge.
        import_path: Folder with a plugin that is not installed; empty: none. For tests.
    """

    plugin: str
    environment: dict[str, str]
    folder: Path
    setup: Setup = field(default_factory=lambda: Setup(mode="run", selection=Selection()))
    import_path: str = ""


def supervise(order: RunOrder, watcher: Watcher | None = None) -> Told:
    """Run judge and executors to the end, whatever they do; nothing of them is left running."""
    logs = order.folder / LOGS_FOLDER
    logs.mkdir(parents=True, exist_ok=True)
    executors = OwnExecutors(
        order.plugin,
        order.environment,
        logs,
        order.setup.limits,
        import_path=order.import_path,
        extension=order.setup.extension,
    )
    try:
        executors.prepare()
        with _Judge(order, logs) as judge:
            return _Supervision(order, executors, judge, watcher).run()
    finally:
        executors.close()


class _Judge:
    """The judge's process with both channels to it."""

    def __init__(self, order: RunOrder, logs: Path) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.events, write_end = os.pipe()
        arguments = [str(theirs.fileno()), str(write_end)]
        command = clean_command("dougong_conformance.runner.judge_main", arguments)
        self.child = start_child(
            command,
            judge_environment(),
            logs / "judge.log",
            (theirs.fileno(), write_end),
            logs,
        )
        theirs.close()
        os.close(write_end)
        self.control.sendall(json.dumps(order.setup.to_json()).encode())

    def __enter__(self) -> _Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.control.close()
        os.close(self.events)
        self.child.kill()


class _Supervision:
    def __init__(
        self, order: RunOrder, executors: OwnExecutors, judge: _Judge, watcher: Watcher | None
    ) -> None:
        self._limits = order.setup.limits
        self._executors = executors
        self._judge = judge
        self._watcher = watcher
        self._told = Told()
        self._buffer = b""
        self._heard = time.monotonic()
        self._case_began = time.monotonic()
        self._file = order.folder / EVENTS_FILE

    def run(self) -> Told:
        """Until the judge has ended, or must be ended."""
        with self._file.open("wb") as file, selectors.DefaultSelector() as waiting:
            waiting.register(self._judge.events, selectors.EVENT_READ, "events")
            waiting.register(self._judge.control, selectors.EVENT_READ, "control")
            while waiting.get_map():
                for key, _ in self._select(waiting):
                    still_open = self._read(file.write) if key.data == "events" else self._answer()
                    if not still_open:
                        waiting.unregister(key.fileobj)
                self._executors.watch()
                if self._is_judge_lost():
                    break
        self._finish()
        return self._told

    def _select(self, waiting: selectors.BaseSelector) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for the judge to speak, an executor to end, or a moment to pass."""
        with _registered(waiting, self._executors.handles()):
            return [one for one in waiting.select(_TICK_S) if one[0].data != "executor"]

    def _read(self, keep: Callable[[bytes], int]) -> bool:
        data = os.read(self._judge.events, 1 << 16)
        keep(data)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            event = self._told.take(line.decode("utf-8", "replace"))
            self._heard = time.monotonic()
            if event is None:
                continue
            if event["event"] in ("start", "end", "plan"):
                self._case_began = self._heard
            if self._watcher is not None and event["event"] != "heartbeat":
                self._watcher.event(event, self._told)
        return bool(data)

    def _answer(self) -> bool:
        still_open = answer_request(self._judge.control, self._executors)
        self._heard = time.monotonic()  # it waited for this process
        return still_open

    def _is_judge_lost(self) -> bool:
        limits, now = self._limits, time.monotonic()
        if now - self._heard > limits.silence_s:
            self._told.problems.append(f"the judge was silent for {limits.silence_s:.0f} s")
            return True
        longest = limits.case_max_s + limits.compile_max_s + 4 * limits.start_s
        if now - self._case_began > longest:
            where = self._told.started or "between two cases"
            self._told.problems.append(f"the judge came to no end with {where}")
            return True
        return False

    def _finish(self) -> None:
        code = self._judge.child.wait(self._limits.term_s)
        if self._buffer.strip():
            self._told.take(self._buffer.decode("utf-8", "replace"))
        if self._told.broken_lines:
            self._told.problems.append(f"{self._told.broken_lines} lines of the judge are no event")
        if code != 0 and not self._told.problems:
            tail = last_lines(self._judge.child.log)
            where = f" at {self._told.started}" if self._told.started else ""
            self._told.problems.append(f"the judge {how_it_ended(code)}{where}: {tail}")


@contextlib.contextmanager
def _registered(waiting: selectors.BaseSelector, handles: dict[int, int]) -> Iterator[None]:
    for number, fd in handles.items():
        with contextlib.suppress(KeyError):
            waiting.register(fd, selectors.EVENT_READ, "executor")
        del number
    try:
        yield
    finally:
        for fd in handles.values():
            with contextlib.suppress(KeyError):
                waiting.unregister(fd)
            os.close(fd)
