"""A process with torch, the core and the suite loaded, and no plugin: executors are its copies.

Importing those takes seconds, and a run needs dozens of executors. A copy is orphaned on purpose,
so that it becomes a child of the supervisor, which then sees by itself how the copy ended. What a
vendor's library reads from the environment when it is loaded is set in the copy before that.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import time
from typing import Any

from dougong_conformance.runner.executor_main import import_all, serve_and_end, take_connection


def main() -> None:
    """Make a copy for each request on the channel that is named in the one argument."""
    told = json.loads(sys.argv[1])
    control = take_connection(told["control"])
    import_all(told["extension"])
    gc.collect()
    gc.freeze()  # copies share these pages
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1 << 16, 2)
        if not message:
            os._exit(0)
        pid = _copy(control, json.loads(message), fds[0], fds[1])
        for fd in fds:
            os.close(fd)
        control.sendall(json.dumps({"pid": pid}).encode())


def _copy(control: socket.socket, order: dict[str, Any], connection: int, log: int) -> int:
    """Start an orphan; returns its pid."""
    read_end, write_end = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            os.close(write_end)
            control.close()
            _become_executor(order, connection, log)
        os.write(write_end, str(pid).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        pid = int(answer.read())
    os.waitpid(between, 0)
    return pid


def _become_executor(order: dict[str, Any], connection: int, log: int) -> None:
    os.setsid()
    for fd in (1, 2):
        os.dup2(log, fd)
    os.close(log)
    while os.getppid() != order["adopter"]:
        time.sleep(0.001)  # until the one between has ended and the supervisor is the parent
    os.environ.clear()  # with what follows: all of it, set before a vendor's library is loaded
    os.environ.update(order["environment"])
    if order["import_path"]:
        sys.path.insert(1, order["import_path"])  # where PYTHONPATH would have put it
    _load_device_backends()
    serve_and_end(take_connection(connection), order)


def _load_device_backends() -> None:
    """What ``import torch`` does of itself, and must not do before the environment is set."""
    import torch

    load = getattr(torch, "_import_device_backends", None)
    if load is not None:
        load()


if __name__ == "__main__":
    main()
