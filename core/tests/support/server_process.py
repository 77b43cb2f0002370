"""``dougong serve`` in a process of its own, on a free port."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil

START_TIMEOUT_S = 60.0
_ADDRESS = re.compile(r"serving .* at (http://\S+)")


class ServerProcess:
    """A server that is being read and asked.

    Attributes:
        url: Where it listens.
        log: What it has said so far.
    """

    def __init__(self, model: str, *options: str, path: Path | None = None) -> None:
        command = [sys.executable, "-m", "dougong.cli.main", "serve", model, "--port", "0"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if path is not None:
            environment["PYTHONPATH"] = str(path)
        self.process = subprocess.Popen(
            [*command, *options], stderr=subprocess.PIPE, text=True, env=environment
        )
        self.log = ""
        self.url = ""
        self._is_up = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._is_up.wait(START_TIMEOUT_S), self.log
        assert self.url, self.log

    def get(self, path: str) -> httpx.Response:
        """An answer; one connection each."""
        return httpx.get(self.url + path, timeout=20)

    def metric(self, name: str) -> float:
        """Value of a metric without labels."""
        for line in self.get("/metrics").text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise AssertionError(f"there is no metric {name}")

    def engine_pid(self) -> int:
        """Of the engine's process."""
        children = psutil.Process(self.process.pid).children()
        (engine,) = [one for one in children if "spawn_main" in " ".join(one.cmdline())]
        pid: int = engine.pid
        return pid

    def end(self) -> int:
        """Wait for the end; the exit code."""
        code = self.process.wait(30)
        self._reader.join(10)
        return code

    def close(self) -> None:
        """End it, whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(10)
        self._reader.join(10)
        if self.process.stderr is not None:
            self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line
            if found := _ADDRESS.search(line):
                self.url = found[1]
                self._is_up.set()
        self._is_up.set()


@contextlib.contextmanager
def running_server(model: str, *options: str, path: Path | None = None) -> Iterator[ServerProcess]:
    """A server for the block's time."""
    server = ServerProcess(model, *options, path=path)
    try:
        yield server
    finally:
        server.close()
