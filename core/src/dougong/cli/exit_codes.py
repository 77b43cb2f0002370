"""How a command ends: one number for each who can act."""

from __future__ import annotations

from enum import IntEnum

from dougong.errors import (
    ConfigError,
    DeviceError,
    DougongError,
    EngineDeadError,
    PluginError,
    RequestError,
)


class ExitCode(IntEnum):
    """Exit codes of every ``dougong`` command."""

    OK = 0
    FAILED = 1  # anything else; a check that did not pass
    CONFIG = 2  # the user: an option, a file or the choice of a platform
    PLUGIN = 3  # the vendor: a plugin is broken, refused or breaks its contract
    REQUEST = 4  # the request can never be served
    DEVICE = 5  # a device failed, or the engine died
    INTERRUPTED = 130  # Ctrl-C, as shells have it


_BY_KIND: tuple[tuple[type[DougongError], ExitCode], ...] = (
    (ConfigError, ExitCode.CONFIG),
    (PluginError, ExitCode.PLUGIN),
    (RequestError, ExitCode.REQUEST),
    (DeviceError, ExitCode.DEVICE),
    (EngineDeadError, ExitCode.DEVICE),
)


def exit_code(error: DougongError) -> ExitCode:
    """The code that a command ends with when ``error`` leaves it."""
    return next((code for kind, code in _BY_KIND if isinstance(error, kind)), ExitCode.FAILED)
