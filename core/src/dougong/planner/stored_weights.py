"""Which weights stay as the checkpoint stores them: those that kernels read so, at every size of a
step and in every op that reads them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dougong.config.op_switches import OpSwitches
from dougong.contracts import StoredWeights
from dougong.describe import OpCandidate, OpSite
from dougong.planner.inputs import PlanInputs
from dougong.planner.op_candidates import WEIGHT_FORMAT, OpCandidates, names_format
from dougong.planner.op_site import SiteVerdict, fixed_below, judge_site

_SIZES = ("in_features", "out_features", "hidden_size", "intermediate_size", "vocab_size")


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """What becomes of weights in blocks.

    Attributes:
        inputs: With ``weight_format`` of the ops whose weight stays.
        stored: For the ranks.
        kernels: Format → kernels that read it.
        why_not: Format → why weights do not stay, each reason with how many of them.
        shares: Format → share of its elements that stays, as far as ops have them.
    """

    inputs: PlanInputs
    stored: tuple[StoredWeights, ...]
    kernels: Mapping[str, tuple[str, ...]]
    why_not: Mapping[str, Mapping[str, int]]
    shares: Mapping[str, float]


def plan_stored(inputs: PlanInputs) -> StoredPlan:
    """Pure, as all of planning."""
    sites, switches = inputs.needs.ops, inputs.switches
    fixed = fixed_below(sites, switches)
    by_weight: dict[str, list[OpSite]] = {}
    for site in sites:
        if site.stored_as:
            by_weight.setdefault(site.weight, []).append(site)
    candidates = OpCandidates.of(inputs)
    kept: dict[str, str] = {}
    kernels: dict[str, dict[str, None]] = {}
    why_not: dict[str, dict[str, int]] = {}
    sizes: dict[str, list[int]] = {}
    for weight, readers in by_weight.items():
        name = readers[0].stored_as
        verdicts = [
            judge_site(_stored(site), candidates, switches, fixed.get(site.path, {}))
            for site in readers
        ]
        plain = _asked_for_plain(verdicts, switches)
        owners = () if plain else tuple(_owners(verdicts))
        size = max(_size_of(site) for site in readers)
        sizes.setdefault(name, []).extend((size, size if owners else 0))
        if owners:
            kept[weight] = name
            kernels.setdefault(name, {}).update(dict.fromkeys(owners))
        else:
            reason = plain or _why_not(verdicts, candidates, name, inputs.platform)
            counts = why_not.setdefault(name, {})
            counts[reason] = counts.get(reason, 0) + 1
    changed = tuple(
        _stored(site) if site.stored_as and site.weight in kept else site for site in sites
    )
    return StoredPlan(
        inputs=replace(inputs, needs=replace(inputs.needs, ops=changed)) if kept else inputs,
        stored=_for_ranks(kept, by_weight),
        kernels={name: tuple(found) for name, found in kernels.items()},
        why_not=why_not,
        shares={name: sum(found[1::2]) / max(1, sum(found[::2])) for name, found in sizes.items()},
    )


def _stored(site: OpSite) -> OpSite:
    return replace(site, properties={**site.properties, WEIGHT_FORMAT: site.stored_as})


def _owners(verdicts: Sequence[SiteVerdict]) -> Iterator[str]:
    """Kernels that read the weight, if all of its readers have one at every size of a step; of a
    slot and a part that share it, the slot's is enough."""
    owned = [verdict for verdict in verdicts if verdict.owns_its_inside]
    around = tuple(f"{verdict.site.path}." for verdict in owned)
    for verdict in verdicts:
        path = verdict.site.path
        is_covered = verdict in owned or path.startswith(around)
        has_owned_part = any(one.site.path.startswith(f"{path}.") for one in owned)
        if not (is_covered or has_owned_part):
            return
    for verdict in owned:
        if not verdict.site.path.startswith(around):
            yield from (piece.implementation for piece in verdict.pieces)


def _asked_for_plain(verdicts: Iterable[SiteVerdict], switches: OpSwitches) -> str:
    """The user's choice of an implementation that reads no stored weight; empty: there is none."""
    for verdict in verdicts:
        key = verdict.site.key
        explicit = switches.implementations.get(key)
        if explicit in verdict.objections:
            return f"{explicit}: --op {key}={explicit} was asked for, and it takes plain weights"
    return ""


def _why_not(
    verdicts: Iterable[SiteVerdict], candidates: OpCandidates, name: str, platform: str
) -> str:
    """Of kernels that read some stored format; else nobody does."""
    told = dict.fromkeys(
        f"{one.name}: {why}"
        for verdict in verdicts
        for one in candidates.get(verdict.site.key)
        if names_format(one)
        and _takes(one, name)
        and (why := verdict.off_because or verdict.objections.get(one.name, ""))
    )
    return "; ".join(told) or f"platform {platform} has no kernel for {name}"


def _takes(candidate: OpCandidate, name: str) -> bool:
    return all(
        constraint.accepts(name)
        for prop, constraint in candidate.when.properties
        if prop == WEIGHT_FORMAT
    )


def _size_of(site: OpSite) -> int:
    """Elements of an op's weight, from the sizes that every such op tells."""
    sizes = [int(site.properties[name]) for name in _SIZES if name in site.properties]
    return math.prod(sizes) * (2 if "intermediate_size" in site.properties else 1)


def _for_ranks(
    kept: Mapping[str, str], by_weight: Mapping[str, Sequence[OpSite]]
) -> tuple[StoredWeights, ...]:
    paths: dict[str, list[str]] = {}
    for weight, name in kept.items():
        paths.setdefault(name, []).append(min((one.path for one in by_weight[weight]), key=len))
    return tuple(StoredWeights(format=name, paths=tuple(found)) for name, found in paths.items())
