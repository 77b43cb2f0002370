"""Switches that cannot be obeyed: where, and each candidate with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dougong.config.op_switches import OpSwitches
from dougong.contracts.rank_plan import NATIVE
from dougong.planner.findings import nested
from dougong.planner.op_candidates import OpCandidates
from dougong.planner.op_site import SiteVerdict, fixed_switch


def op_refusals(
    verdicts: Sequence[SiteVerdict],
    running: Sequence[SiteVerdict],
    candidates: OpCandidates,
    switches: OpSwitches,
) -> Iterator[str]:
    """One problem per switch and reason.

    Args:
        verdicts: Of every place.
        running: Of the places that are not inside a fused slot which does their work.
        candidates: Of every op.
        switches: The user's.
    """
    present = dict.fromkeys(verdict.site.key for verdict in verdicts)
    has_ops = ", ".join(sorted(present))
    asked = sorted(switches.required | {key for key, name in switches.implementations.items()
                                        if name != NATIVE})  # fmt: skip
    for key in asked:
        switch = fixed_switch(key, switches)
        name = switches.implementations.get(key)
        if key not in present:
            yield f"{switch} cannot be obeyed: this model has no op {key}. It has: {has_ops}."
        elif name is not None and name not in [one.name for one in candidates.get(key)]:
            yield (
                f"{switch} names an implementation that nobody registered for {key}. There are: "
                f"{candidates.names(key)}."
            )
        else:
            yield from _unmet(key, switch, name, running, candidates)


def _unmet(
    key: str,
    switch: str,
    name: str | None,
    running: Sequence[SiteVerdict],
    candidates: OpCandidates,
) -> Iterator[str]:
    """Places where the switch does not hold, those with the same reasons together."""
    places = [verdict for verdict in running if verdict.site.key == key]
    by_reason: dict[tuple[str, ...], list[SiteVerdict]] = {}
    for verdict in places:
        is_obeyed = not verdict.is_native if name is None else name not in verdict.objections
        if not is_obeyed:
            reasons = tuple(_reasons(verdict, key, name, candidates))
            by_reason.setdefault(reasons, []).append(verdict)
    for reasons, found in by_reason.items():
        where = f"{len(found)} of {len(places)} places (the first is {found[0].site.path})"
        able = [one.name for one in candidates.get(key)
                if not any(one.name in verdict.objections for verdict in places)]  # fmt: skip
        instead = (f"leave {switch} out", *(f"--op {key}={other}" for other in able))
        head = f"{switch} cannot be obeyed at {where}:"
        yield nested(head, (*reasons, f"Instead: {', or '.join(instead)}."))


def _reasons(
    verdict: SiteVerdict, key: str, name: str | None, candidates: OpCandidates
) -> Iterator[str]:
    others = []
    for one in candidates.get(key):
        objection = verdict.objections.get(one.name)
        line = f"{one.name}: {objection or 'would do'}"
        if one.name == name:
            yield line
        else:
            others.append(line)
    yield from others
    if not candidates.get(key):
        yield "no installed package has another implementation than native"
