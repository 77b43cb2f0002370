"""What a run would do with a plugin, by profile, before it is run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from dougong_conformance.requirements import PROFILES, Requirement
from dougong_conformance.results import Header
from dougong_conformance.runner.limits import RANKS_PER_DEVICE_CLAIM
from dougong_conformance.runner.protocol import Told
from dougong_conformance.runner.selection import requirement_of

_OWN_MEMORY = "device.memory_of_its_own"
_SHARED = "is_integrated"


def forecast(
    rows: Mapping[str, Requirement], header: Header, told: Told
) -> dict[str, dict[str, Any]]:
    """Per profile: ``cases`` that would run, and ``not``: reason → how many requirements."""
    found = {}
    for profile in PROFILES:
        own = [row for row in rows.values() if row.profile == profile]
        if not own:
            continue
        reasons: Counter[str] = Counter()
        idle = set()
        for row in own:
            for reason in _obstacles(row, header, told):
                reasons[reason] += 1
                idle.add(row.id)
        cases = [id for id in told.selected if requirement_of(id).startswith(f"{profile}.")]
        running = [id for id in cases if requirement_of(id) not in idle]
        found[profile] = {"cases": len(running), "not": dict(sorted(reasons.items()))}
    return found


def _obstacles(row: Requirement, header: Header, told: Told) -> Iterator[str]:
    """Why a requirement would not be judged, the first reason only."""
    if not told.plugin:
        yield "the plugin does not load"
    elif row.id not in told.checks:
        yield "provisional: the core lacks the feature" if row.is_provisional else "has no check"
    elif row.needs.devices > len(header.devices):
        if row.capability == _OWN_MEMORY and header.devices[:1] and header.devices[0].get(_SHARED):
            yield "not claimed: the device shares the host's memory"
        else:
            yield f"needs {row.needs.devices} devices"
    elif row.needs.ranks > _capacity(header):
        yield f"needs {row.needs.ranks} ranks"


def _capacity(header: Header) -> int:
    if header.facts.get("device_type") == "cpu":
        return 1 << 30  # the host takes any number
    limits = header.claims.get("limits")
    claimed = limits.get(RANKS_PER_DEVICE_CLAIM, 1) if isinstance(limits, Mapping) else 1
    return len(header.devices) * int(claimed)
