"""The process with the plugin: loads it by its name, serves calls, judges nothing.

Started by itself, or as a copy of a template (`template_main`) that had no plugin in it either.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve the connection that is named in the one argument, until it closes."""
    told = json.loads(sys.argv[1])
    connection = take_connection(told["connection"])
    import_all(told["extension"])
    serve_and_end(connection, told)


def take_connection(fd: int) -> socket.socket:
    """Move the connection away from low numbers, out of reach of what is printed or executed."""
    connection = socket.socket(fileno=os.dup(fd))
    os.set_inheritable(connection.fileno(), False)
    os.close(fd)
    return connection


def import_all(extension: str) -> None:
    """Import what serves calls, and note what a plugin may change; no plugin is known here."""
    from dougong_conformance.drivers import patches
    from dougong_conformance.procedures import all_procedures

    if extension:
        sys.path.append(extension)
        importlib.import_module("conformance_extension_procedures")
    all_procedures()
    patches.note_before()


def serve_and_end(connection: socket.socket, told: dict[str, Any]) -> None:
    """Serve until the connection closes, then end without what a vendor left for the exit."""
    faulthandler.enable(all_threads=True)
    # In C: a thread that holds the interpreter's lock for ever cannot prevent it.
    faulthandler.register(signal.SIGTERM, all_threads=True, chain=True)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    code = 0
    try:
        _serve(connection, told)
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:  # noqa: BLE001 - KeyboardInterrupt and the like end it, and are printed
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _serve(connection: socket.socket, told: dict[str, Any]) -> None:
    from dougong_conformance.runner import frames

    answer_to = _Service(told)
    own_pid = os.getpid()
    frames.send(connection, {"to": 0})
    while True:
        try:
            call = frames.receive(connection)
        except frames.ConnectionEnded:
            return
        answer = answer_to(call)
        if os.getpid() != own_pid:  # a plugin forked and let the copy come back to here
            os._exit(1)
        try:
            frames.send(connection, {**answer, "to": call["number"]})
        except TypeError as exc:
            what = f"{call['procedure']}: {exc}"
            frames.send(connection, {"suite": what, "to": call["number"]})


class _Service:
    """Answers calls on one session; the plugin is loaded by the first one."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told
        self._session: Any = None

    def __call__(self, call: dict[str, Any]) -> dict[str, Any]:
        from dougong_conformance.local import as_raised
        from dougong_conformance.procedures import all_procedures

        name = call["procedure"]
        if name not in all_procedures():
            return {"suite": f"no driver has a procedure {name!r}"}
        try:
            value = all_procedures()[name](self._opened(), **call["arguments"])
        except Exception as exc:  # noqa: BLE001 - third-party code; it is handed over whole
            return {"raised": as_raised(exc)}
        return {"value": value}

    def _opened(self) -> Any:
        from dougong_conformance.session import Session, load_plugin

        if self._session is None:
            plugin = load_plugin(self._told["plugin"])
            self._session = Session(plugin, device_index=self._told["device_index"])
        return self._session


if __name__ == "__main__":
    main()
