"""Who is installed, who is chosen, and the chosen one made ready. Imports no plugin by itself.

`open_platform` does all of it; `discover`, `select_platform` and `load_platform` are its steps.
"""

from __future__ import annotations

from dougong.platforms.conformance import Conformance, check_conformance, conformance_of
from dougong.platforms.description import open_for_description, open_present_platform
from dougong.platforms.discovery import discover
from dougong.platforms.examination import examine_rest
from dougong.platforms.facts import read_capabilities
from dougong.platforms.hooks import PluginHooks
from dougong.platforms.kernels import import_kernels, read_kernels, report_problems
from dougong.platforms.loading import LoadedPlatform, check_runtime, load_class, load_platform
from dougong.platforms.opening import check_device_mask, open_platform
from dougong.platforms.probing import ProbeCache
from dougong.platforms.process_check import Handover, hand_over, join_parent
from dougong.platforms.selection import Selection, select_platform
from dougong.platforms.table import PluginRow, PluginTable, Verdict

__all__ = [
    "Conformance",
    "Handover",
    "LoadedPlatform",
    "PluginHooks",
    "PluginRow",
    "PluginTable",
    "ProbeCache",
    "Selection",
    "Verdict",
    "check_conformance",
    "check_device_mask",
    "check_runtime",
    "conformance_of",
    "discover",
    "examine_rest",
    "hand_over",
    "import_kernels",
    "join_parent",
    "load_class",
    "load_platform",
    "open_for_description",
    "open_platform",
    "open_present_platform",
    "read_capabilities",
    "read_kernels",
    "report_problems",
    "select_platform",
]
