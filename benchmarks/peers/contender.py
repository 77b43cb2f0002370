"""One contender: its runner process, frozen while another one has the CPUs.

Idle is not free: OpenMP threads spin after a parallel region and some engines poll for work. So
the whole process group of a contender is stopped (``SIGSTOP``) whenever it is not its turn, and
`Contender.cpu_used_while_frozen_s` says what it used when it should have used nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from benchmarks.peers.protocol import Measurement, Point

REPOSITORY = Path(__file__).resolve().parents[2]
SETTLE_S = 0.2
"""Pause after a stop, so that the next contender starts on quiet CPUs."""
WAKE_UP = Point(num_requests=1, prompt_len=16, output_len=2)
"""Done before every measurement, untimed: a process that was frozen is not yet awake."""


class ContenderError(RuntimeError):
    """A runner failed; the message carries its own traceback or the end of its log."""


@dataclass(frozen=True, slots=True)
class ContenderSpec:
    """How to start one contender.

    Attributes:
        name: As shown in tables.
        python: Interpreter of its environment.
        module: Runner module, run with ``-m``.
        options: Sent with ``load``.
        environment: Variables added for the process.
    """

    name: str
    python: Path
    module: str
    options: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)


class Contender:
    """A running runner; use as a context manager."""

    def __init__(self, spec: ContenderSpec, log: Path) -> None:
        """Start the process; nothing is loaded yet.

        Args:
            spec: What to start.
            log: Gets everything the process says beside its answers.
        """
        self.spec = spec
        self.ready: dict[str, Any] = {}
        self._log = log
        self._is_closed = False
        self._cpu_s_while_frozen = 0.0
        self._cpu_s_at_stop: float | None = None
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [str(spec.python), "-m", spec.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=REPOSITORY,
                env={**os.environ, **spec.environment},
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> Contender:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._signal(signal.SIGKILL)  # it may be in the middle of minutes of work
        self.close()

    def load(self) -> dict[str, Any]:
        """Load the model, then stop the process; returns the ``ready`` answer."""
        self.ready = self._ask({"command": "load", "options": dict(self.spec.options)})
        self.stop()
        return self.ready

    def run(self, point: Point) -> Measurement:
        """Wake the process, measure one point, stop it again."""
        self.resume()
        try:
            self._ask({"command": "run", "point": asdict(WAKE_UP)})
            answer = self._ask({"command": "run", "point": asdict(point)})
        finally:
            self.stop()
        answer.pop("event")
        return Measurement(**answer | {"first_tokens": tuple(answer["first_tokens"])})

    def stop(self) -> None:
        """Freeze every process of the group."""
        self._signal(signal.SIGSTOP)
        time.sleep(SETTLE_S)
        self._cpu_s_at_stop = group_cpu_s(self._process.pid)

    def resume(self) -> None:
        """Let the group run again, and add up what it used while frozen."""
        self._cpu_s_while_frozen = self.cpu_used_while_frozen_s()
        self._cpu_s_at_stop = None
        self._signal(signal.SIGCONT)

    def cpu_used_while_frozen_s(self) -> float:
        """CPU seconds over all times the group was frozen, this one included."""
        if self._cpu_s_at_stop is None:
            return self._cpu_s_while_frozen
        return self._cpu_s_while_frozen + group_cpu_s(self._process.pid) - self._cpu_s_at_stop

    def close(self) -> None:
        """Ask the process to end; kill its group if it does not within a while. Callable twice."""
        self._signal(signal.SIGCONT)
        if not self._is_closed and self._process.poll() is None:
            try:
                self._pipe(self._process.stdin).write('{"command": "quit"}\n')
                self._pipe(self._process.stdin).close()
                self._process.wait(timeout=30)
            except (OSError, subprocess.TimeoutExpired):
                pass
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._is_closed = True  # the number of the group may be somebody else's from now on

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            stdin = self._pipe(self._process.stdin)
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            line = self._pipe(self._process.stdout).readline()
        except BrokenPipeError:
            line = ""
        if not line:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
            raise ContenderError(f"{self.spec.name} died; the end of {self._log}:\n{tail}")
        answer: dict[str, Any] = json.loads(line)
        if answer["event"] == "error":
            raise ContenderError(f"{self.spec.name}: {answer['error']}\n{answer['traceback']}")
        return answer

    def _signal(self, number: signal.Signals) -> None:
        if self._is_closed:
            return
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None, "both pipes are asked for when the process is started"
        return pipe


def group_cpu_s(group: int) -> float:
    """CPU seconds used so far by all live processes of a process group."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The second field may hold blanks and brackets; what follows the last bracket may not.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # the process ended meanwhile
            continue
        if int(fields[2]) == group:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
