"""A server of one's own for a measurement: ``dougong serve`` in a process beside this one."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import IO, Any

from dougong.config.args import EngineArgs
from dougong.errors import DougongError

_POLL_S = 0.1
_STOP_TIMEOUT_S = 20.0
_MOST_SHOWN = 3000
_HOST = "127.0.0.1"


@contextlib.contextmanager
def own_server(args: EngineArgs, model_name: str) -> Iterator[str]:
    """A server for the block's time.

    Args:
        args: Its engine's options.
        model_name: What it calls its model.

    Yields:
        Its address.

    Raises:
        DougongError: It ended before it could be asked; its last words are in the message.
    """
    port = _free_port()
    command = [sys.executable, "-m", "dougong.cli.main", "serve", "--port", str(port)]
    command += ["--served-model-name", model_name, *engine_options(args)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            url = f"http://{_HOST}:{port}"
            _wait_until_up(process, url, log)
            yield url
        finally:
            _stop(process)


def engine_options(args: EngineArgs) -> list[str]:
    """The command line that gives these options again."""
    words: list[str] = []
    for name in args.option_names():
        value = getattr(args, name)
        if value is not None:
            words += _option("engine_seed" if name == "seed" else name, value)
    return words


def _option(name: str, value: Any) -> list[str]:
    spelt = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{spelt}" if value else f"--no-{spelt}"]
    if isinstance(value, (list, tuple)):
        return [word for one in value for word in _option(name, one)]
    return [f"--{spelt}", str(value)]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((_HOST, 0))
        port: int = one.getsockname()[1]
        return port


def _wait_until_up(process: subprocess.Popen[bytes], url: str, log: IO[bytes]) -> None:
    while process.poll() is None:
        with contextlib.suppress(OSError):  # nobody listens yet
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
            return
        time.sleep(_POLL_S)
    log.seek(0)
    said = log.read().decode(errors="replace")[-_MOST_SHOWN:].strip()
    raise DougongError(f"The server ended with exit code {process.returncode}:\n{said}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
