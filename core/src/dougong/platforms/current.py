"""The platform of a script: resolved at first use, never at import. The engine does not read it."""

from __future__ import annotations

import threading

from dougong.contracts.platform import Platform
from dougong.platforms.opening import open_platform

_lock = threading.Lock()
_resolved: list[Platform] = []


def current_platform() -> Platform:
    """The platform that a start without options would use; the same object every time.

    Raises:
        ConfigError: None, or more than one, fits.
        PluginError: A plugin stops the choice. The next call tries again.
    """
    with _lock:
        if not _resolved:
            _resolved.append(open_platform().platform)
        return _resolved[0]
