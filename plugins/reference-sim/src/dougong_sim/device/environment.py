"""The environment variables of the device, which stand for the machine. Read when it is loaded.

Variables:
    SIM_DEVICE_COUNT: Physical devices in the machine; 8.
    SIM_VISIBLE_DEVICES: Physical numbers, comma-separated; unset: all. The order is kept, the
        position becomes the index, an empty value hides all, and the first entry that names no
        device (or one a second time) ends the list.
    SIM_MODE: When queued work runs: ``eager``, ``lazy`` (the default) or ``thread``.
    SIM_DELAY_US: In thread mode, how old work must be before it starts; 0.
    SIM_MEMORY_BYTES: Memory of each device; 1 GiB.
    SIM_EXCLUSIVE: ``1``: a device serves one process; others are told it is busy.
    SIM_STATE_DIR: Where the lock files of exclusive use lie; the folder for temporary files.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

Mode = Literal["eager", "lazy", "thread"]

MAX_DEVICES = 16


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables, understood."""

    visible: tuple[int, ...]  # physical number of each index
    mode: Mode
    delay_us: int
    memory_bytes: int  # per device
    is_exclusive: bool
    state_dir: str


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """All variables, from ``os.environ`` unless given.

    Raises:
        ValueError: A value that cannot be understood; the message names the variable.
    """
    env = os.environ if variables is None else variables
    return Environment(
        visible=visible_devices(env),
        mode=_mode(env.get("SIM_MODE") or "lazy"),
        delay_us=_number(env, "SIM_DELAY_US", 0),
        memory_bytes=_number(env, "SIM_MEMORY_BYTES", 1 << 30),
        is_exclusive=env.get("SIM_EXCLUSIVE", "0") not in ("", "0"),
        state_dir=env.get("SIM_STATE_DIR") or tempfile.gettempdir(),
    )


def visible_devices(variables: Mapping[str, str]) -> tuple[int, ...]:
    """Physical number of each visible device, in the order of their indices."""
    count = _number(variables, "SIM_DEVICE_COUNT", 8)
    if count > MAX_DEVICES:
        raise ValueError(
            f"SIM_DEVICE_COUNT={count}: at most {MAX_DEVICES} devices can be simulated"
        )
    mask = variables.get("SIM_VISIBLE_DEVICES")
    if mask is None:
        return tuple(range(count))
    visible: list[int] = []
    for entry in mask.split(","):
        number = int(entry) if entry.strip().isdecimal() else count
        if number >= count or number in visible:
            break
        visible.append(number)
    return tuple(visible)


def _mode(value: str) -> Mode:
    if value not in get_args(Mode):
        raise ValueError(f"SIM_MODE={value!r} is none of {', '.join(get_args(Mode))}")
    return cast(Mode, value)


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    value = env.get(name) or str(default)
    if not value.strip().isdecimal():
        raise ValueError(f"{name}={value!r} is not a whole number")
    return int(value)
