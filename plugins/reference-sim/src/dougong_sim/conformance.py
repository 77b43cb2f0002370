"""What this plugin offers the conformance suite beside the contract: faults on demand.

Optional. The suite looks for a module of this name beside the platform's; where there is none it
leaves out the checks that need it. A vendor offers what the driver or a debugging tool can do. It
is no part of the plugin at work, and nothing else imports it.
"""

from __future__ import annotations

from collections.abc import Mapping

BROKEN_ENVIRONMENT: Mapping[str, str] = {"SIM_DEVICE_COUNT": "many"}
"""Variables under which the runtime cannot start: the probe has to raise, not to find nothing."""

KINDS = ("oom_next", "copy_error", "launch_error", "device_lost", "slow")
"""What `inject` can arm."""


def inject(kind: str, device_index: int, *, seconds: float = 0.0) -> None:
    """Arm a fault: the next action that fits meets it, late where the device is late.

    Args:
        kind: One of `KINDS`.
        device_index: Within the platform.
        seconds: Of ``slow``: how much longer the next kernel takes.
    """
    from dougong_sim.device import control

    if kind == "oom_next":
        control.inject("oom", device_index)
    elif kind == "copy_error":
        control.inject("error", device_index, op="copy_d2h", message="the copy failed")
    elif kind == "launch_error":
        control.inject("error", device_index, message="the kernel failed")
    elif kind == "device_lost":
        control.inject("lost", device_index)
    elif kind == "slow":
        control.inject("slow", device_index, milliseconds=int(seconds * 1e3))
    else:
        raise ValueError(f"fault {kind!r} is none of {', '.join(KINDS)}")


def clear(device_index: int) -> None:
    """Make the device well again, whatever was armed or has happened."""
    from dougong_sim.device import control

    control.reset(device_index)
