"""A simulated accelerator as a platform of Dougong: the plugin to copy.

Importing this package imports neither torch nor the device's library. `dougong_sim.device` plays
the part of a vendor's torch extension; everything beside it is the plugin.
"""

from __future__ import annotations

__version__ = "0.1.0"
