"""The simulated accelerator itself: in the place of a vendor's torch extension.

`load` makes torch know the device type ``sim``; nothing does it implicitly. Importing this package
imports no torch. `control` is the laboratory's switchboard: modes, faults, counters.
"""

from __future__ import annotations

from dougong_sim.device.loading import LoadError, find_library, load

__all__ = ["LoadError", "find_library", "load"]
