"""The supervisor's side of the template: where a new executor comes from."""

from __future__ import annotations

import atexit
import json
import os
import socket
import tempfile
import uuid
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from dougong_conformance.runner.environment import common_environment, module_command
from dougong_conformance.runner.processes import (
    Child,
    adopt_orphans,
    kill_all,
    start_child,
    with_mark,
)

_MODULE = "dougong_conformance.runner.template_main"
_MARK = "DOUGONG_CONFORMANCE_RUN"
_READ_AT_START = ("LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "MALLOC_", "PYTHON", "TORCH_")


def is_read_at_start(environment: Mapping[str, str]) -> bool:
    """Whether a variable is among these that a process reads before any plugin is loaded."""
    return any(name.startswith(_READ_AT_START) for name in environment)


class Template:
    """A process without a plugin, of which executors are copies.

    Args:
        folder: For its log; it starts there.
        extension: See `OwnExecutors`.
    """

    def __init__(self, folder: Path, extension: str = "") -> None:
        adopt_orphans()
        self._mark = f"{_MARK}={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        environment = {**common_environment(), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", name: value}
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            told = {"control": theirs.fileno(), "extension": extension}
            self.child = start_child(
                module_command(_MODULE, [json.dumps(told)]),
                environment,
                folder / "template.log",
                (theirs.fileno(),),
                folder,
            )

    def copy(self, order: Mapping[str, Any], connection: int, log: Path) -> Child | None:
        """An executor that serves ``connection``; ``None``: the template is gone."""
        message = json.dumps({**order, "adopter": os.getpid()}).encode()
        with log.open("ab") as output:
            try:
                fds = [connection, output.fileno()]
                socket.send_fds(self._control, [message], fds)
                answer = self._control.recv(1 << 10)
            except OSError:
                return None
        return Child(json.loads(answer)["pid"], log) if answer else None

    def close(self) -> None:
        """End it and every copy, those too that left their group and outlived their parent."""
        self._control.close()
        self.child.kill()
        kill_all(with_mark(self._mark))


@cache
def shared_template() -> Template:
    """One for all plugins that this process looks at; it ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="dougong-template-")
    one = Template(Path(folder.name))
    atexit.register(folder.cleanup)
    atexit.register(one.close)
    return one
