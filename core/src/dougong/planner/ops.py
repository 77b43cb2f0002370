"""The op part of a plan: an implementation for every op, fused slots, fallbacks, refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dougong.contracts import OpAssignment, OpPiece, Property
from dougong.contracts.rank_plan import NATIVE
from dougong.describe import OpSite
from dougong.planner.execution_plan import FallbackLevel, OpPlan, PassedOver
from dougong.planner.findings import Findings
from dougong.planner.inputs import PlanInputs
from dougong.planner.op_candidates import OpCandidates, enclosing_paths, names_format, told
from dougong.planner.op_pieces import describe_range
from dougong.planner.op_refusals import op_refusals
from dougong.planner.op_site import SiteVerdict, fixed_below, judge_site

_CORE = "dougong "
"""What the origin of the core's own kernels begins with: there is one for each form of a weight,
and no model has them all."""


def plan_ops(inputs: PlanInputs, findings: Findings) -> tuple[OpPlan, ...]:
    """Per key and properties, in the order of the model; nothing where no outline was made."""
    sites, switches = inputs.needs.ops, inputs.switches
    if not sites:
        return ()
    candidates = OpCandidates.of(inputs)
    fixed = fixed_below(sites, switches)
    verdicts = [judge_site(site, candidates, switches, fixed.get(site.path, {})) for site in sites]
    owners = _find_owners(verdicts)
    running = [verdict for verdict in verdicts if verdict.site.path not in owners]
    for problem in op_refusals(verdicts, running, candidates, switches):
        findings.refuse(problem)
    _note_fallbacks(running, candidates, findings)
    return _group(verdicts, owners, candidates)


def find_unmatched(inputs: PlanInputs) -> tuple[PassedOver, ...]:
    """Candidates that no op of this model could use."""
    candidates = OpCandidates.of(inputs)
    places: dict[str, list[OpSite]] = {}
    for site in inputs.needs.ops:
        places.setdefault(site.key, []).append(site)
    found = []
    for candidate in inputs.candidates.ops if inputs.needs.ops else ():
        if candidate.key not in places:
            found.append(PassedOver(candidate.name, f"this model has no op {candidate.key}"))
            continue
        unmet = [candidates.unmet(candidate, site) for site in places[candidate.key]]
        if all(unmet) and not (candidate.origin.startswith(_CORE) and names_format(candidate)):
            found.append(PassedOver(candidate.name, " or ".join(dict.fromkeys(unmet))))
    return tuple(found)


def _find_owners(verdicts: Sequence[SiteVerdict]) -> dict[str, SiteVerdict]:
    """Path → the outermost fused slot that does its work at every token count."""
    slots = {verdict.site.path: verdict for verdict in verdicts if verdict.owns_its_inside}
    owners = {}
    for verdict in verdicts:
        around = (slots[path] for path in enclosing_paths(verdict.site.path) if path in slots)
        if (owner := next(around, None)) is not None:
            owners[verdict.site.path] = owner
    return owners


def _note_fallbacks(
    running: Sequence[SiteVerdict], candidates: OpCandidates, findings: Findings
) -> None:
    """Native, though others are meant for it and cannot: once per op and reason."""
    counts: dict[tuple[str, str], int] = {}
    for verdict in running:
        missed = verdict.missed(candidates)
        if missed:
            subject = f"op {verdict.site.key}"
            if not verdict.is_native:
                subject += f" of {describe_range(NATIVE, verdict.pieces)} tokens"
            reason = "; ".join(told(missed))
            counts[subject, reason] = counts.get((subject, reason), 0) + 1
    totals: dict[str, int] = {}
    for verdict in running:
        totals[verdict.site.key] = totals.get(verdict.site.key, 0) + 1
    for (subject, reason), count in counts.items():
        key = subject.split()[1]
        hint = f"plain torch at {count} of {totals[key]} places"
        findings.fall_back(FallbackLevel.OP, subject, reason, hint)


@dataclass(frozen=True, slots=True)
class _Alike:
    """What the ops of one `OpPlan` have in common."""

    key: str
    properties: tuple[tuple[str, Property], ...]
    pieces: tuple[OpPiece, ...]
    author: str
    inside: str
    passed_over: tuple[PassedOver, ...]


def _group(
    verdicts: Sequence[SiteVerdict], owners: Mapping[str, SiteVerdict], candidates: OpCandidates
) -> tuple[OpPlan, ...]:
    paths: dict[_Alike, list[str]] = {}
    for verdict in verdicts:
        alike = _alike(verdict, owners.get(verdict.site.path), candidates)
        paths.setdefault(alike, []).append(verdict.site.path)
    return tuple(
        OpPlan(
            key=alike.key,
            properties=dict(alike.properties),
            assignment=OpAssignment(key=alike.key, paths=tuple(where), pieces=alike.pieces),
            author=alike.author,
            inside=alike.inside,
            passed_over=alike.passed_over,
        )
        for alike, where in paths.items()
    )


def _alike(verdict: SiteVerdict, owner: SiteVerdict | None, candidates: OpCandidates) -> _Alike:
    of_key = candidates.get(verdict.site.key)
    pieces, author, inside = verdict.pieces, verdict.author, ""
    passed_over = tuple(verdict.passed_over(candidates))
    if owner is not None:
        pieces, author, inside = (OpPiece(NATIVE),), owner.author, owner.site.key
        passed_over = tuple(PassedOver(one.name, f"{inside} does its work") for one in of_key)
    return _Alike(
        key=verdict.site.key,
        properties=tuple(sorted(verdict.site.properties.items())),
        pieces=pieces,
        author=author,
        inside=inside,
        passed_over=passed_over,
    )
