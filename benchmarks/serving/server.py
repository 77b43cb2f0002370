"""One server of the comparison: its processes, frozen while another one has the CPUs."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from benchmarks.peers.contender import REPOSITORY, SETTLE_S, group_cpu_s

HOST = "127.0.0.1"
MODEL_NAME = "demo"
START_TIMEOUT_S = 420.0
_POLL_S = 0.2


class ServerError(RuntimeError):
    """A server did not start; the message carries the end of its log."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """How to start one server.

    Attributes:
        name: As shown in tables.
        command: Without its port.
        environment: Variables added for the process.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class Server:
    """A running server; use as a context manager. Nobody is connected while it is frozen."""

    def __init__(self, spec: ServerSpec, port: int, log: Path) -> None:
        """Start the process; `wait_until_up` waits for it.

        Args:
            spec: What to start.
            port: Where it listens.
            log: Gets everything it says.
        """
        self.spec = spec
        self.port = port
        self.start_s = 0.0
        self._log = log
        self._cpu_s_while_frozen = 0.0
        self._cpu_s_at_stop: float | None = None
        self._is_closed = False
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                [*spec.command, "--host", HOST, "--port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=REPOSITORY,
                env={**os.environ, **spec.environment},
                start_new_session=True,
            )

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process that was started; what it starts itself is not counted there."""
        return self._process.pid

    def wait_until_up(self) -> None:
        """Return once it answers.

        Raises:
            ServerError: It ended, or it took too long.
        """
        begun_s = time.monotonic()
        while self._process.poll() is None and time.monotonic() < begun_s + START_TIMEOUT_S:
            with contextlib.suppress(OSError):
                if self._status_of("/health") == 200:
                    self.start_s = time.monotonic() - begun_s
                    return
            time.sleep(_POLL_S)
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
        raise ServerError(f"{self.spec.name} is not up; the end of {self._log}:\n{tail}")

    def freeze(self) -> None:
        """Stop every process of the group."""
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
        """End the group; callable twice."""
        if self._is_closed:
            return
        self._signal(signal.SIGCONT)
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=20)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._is_closed = True  # the number of the group may be somebody else's from now on

    def _status_of(self, route: str) -> int:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
        with contextlib.closing(connection):
            connection.request("GET", route)
            return connection.getresponse().status

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if not self._is_closed:
                os.killpg(self._process.pid, number)
