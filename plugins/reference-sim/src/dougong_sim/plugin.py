"""What the core reads first: who this is, and whether its devices are here.

Every ``dougong`` command imports this module, on machines without the device too. So it imports
neither torch nor the device's library, and opens nothing.
"""

from __future__ import annotations

from dougong.contracts import Available, NotHere, PlatformPlugin, ProbeAnswer

from dougong_sim.device import find_library
from dougong_sim.driver import VISIBLE_DEVICES_ENV, list_devices


def probe() -> ProbeAnswer:
    """Which devices are here, or why there are none.

    Called once for a whole tree of processes. A vendor looks for the driver and the runtime here;
    *not here* is no error, and its reason is shown to whoever wonders why another platform runs.
    """
    if find_library() is None:
        return NotHere(
            "the device's library was not built; pip install --no-build-isolation builds it where "
            "torch and a C++ compiler are"
        )
    if devices := list_devices():
        return Available(devices)
    return NotHere(f"{VISIBLE_DEVICES_ENV} or SIM_DEVICE_COUNT leaves no device")


plugin = PlatformPlugin(
    name="sim",  # what is typed after --platform
    requires_contract=">=1.0,<2",  # checked before anything below is used
    probe=probe,
    platform="dougong_sim.platform:SimPlatform",  # imported only when chosen
    hooks="dougong_sim.hooks",
    auto_select=False,  # a simulation runs only when it is asked for; a real device leaves this out
)
