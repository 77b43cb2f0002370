"""One op at one place of the model: who runs there, by the user's switches and by conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dougong.config.decision import CORE, USER
from dougong.config.op_switches import OpSwitches
from dougong.contracts import OpPiece
from dougong.contracts.rank_plan import NATIVE
from dougong.describe import OpCandidate, OpSite
from dougong.planner.execution_plan import PassedOver
from dougong.planner.op_candidates import OpCandidates, claimant, enclosing_paths
from dougong.planner.op_pieces import build_pieces, describe_range


@dataclass(frozen=True, slots=True)
class SiteVerdict:
    """Who runs at one place, were it not inside a fused slot.

    Attributes:
        site: The place.
        pieces: By token count.
        author: Who chose.
        objections: Candidate → why it cannot run here.
        off_because: Why the user wants native here; empty: the user does not.
        blocked_because: Why a fused slot must leave its ops alone; empty: it need not.
        is_on: Other implementations than an explicit one may run here.
        switch: What the user said of this op by its name; empty: nothing.
    """

    site: OpSite
    pieces: tuple[OpPiece, ...]
    author: str
    objections: Mapping[str, str]
    off_because: str
    blocked_because: str
    is_on: bool
    switch: str

    @property
    def is_native(self) -> bool:
        """Whether plain torch runs at every token count."""
        return all(piece.implementation == NATIVE for piece in self.pieces)

    @property
    def owns_its_inside(self) -> bool:
        """Whether plain torch runs at no token count."""
        return all(piece.implementation != NATIVE for piece in self.pieces)

    def missed(self, candidates: OpCandidates) -> dict[str, str]:
        """Candidates meant for token counts at which native runs instead, and why they cannot.

        What the user or a fused slot's inside wants native is missed by nobody.
        """
        if self.off_because or self.blocked_because or not self.is_on:
            return {}
        missed = {}
        for one in candidates.get(self.site.key):
            cannot = (
                one.name in candidates.failed
                or candidates.hides_adapters(self.site)
                or candidates.unmet(one, self.site)
            )
            if cannot and claimant(one).overlaps(NATIVE, self.pieces, candidates.max_num_tokens):
                missed[one.name] = self.objections[one.name]
        return missed

    def passed_over(self, candidates: OpCandidates) -> Iterator[PassedOver]:
        """Candidates that do not run here, or not at every token count."""
        for candidate in candidates.get(self.site.key):
            runs_at = describe_range(candidate.name, self.pieces)
            if runs_at == _EVERYWHERE:
                continue
            if runs_at:
                yield PassedOver(candidate.name, f"runs for {runs_at} tokens only")
            else:
                yield PassedOver(candidate.name, self._why_not(candidate, candidates))

    def _why_not(self, candidate: OpCandidate, candidates: OpCandidates) -> str:
        """Why a candidate runs at no token count."""
        if reason := self.off_because or self.objections.get(candidate.name):
            return reason
        if not self.is_on:
            return (
                f"--custom-ops none was asked for, and {self.switch} names another implementation"
            )
        names = dict.fromkeys(piece.implementation for piece in self.pieces)
        meant = claimant(candidate)
        before = [
            name for name in names if meant.overlaps(name, self.pieces, candidates.max_num_tokens)
        ]
        return f"{' and '.join(before)} {'comes' if len(before) == 1 else 'come'} first"


_EVERYWHERE = "1 and more"


def judge_site(
    site: OpSite, candidates: OpCandidates, switches: OpSwitches, fixed_below: Mapping[str, str]
) -> SiteVerdict:
    """Explicit choice, else out-of-tree classes and kernels in their order, else native.

    Args:
        site: The place.
        candidates: Of every op.
        switches: The user's.
        fixed_below: Op inside this one → the switch that says something of it by its name.
    """
    off_because, switch = why_off(site.key, switches), fixed_switch(site.key, switches)
    blocked = "; ".join(
        f"it would do the work of {key} inside it, and {switch} was asked for"
        for key, switch in fixed_below.items()
        if key != site.key  # what was said of that op is obeyed here, around the inner one
    )
    of_key = candidates.get(site.key)
    objections = {
        candidate.name: objection
        for candidate in of_key
        if (objection := candidates.objection(candidate, site) or blocked)
    }
    holding = [claimant(one) for one in of_key if one.name not in objections]
    explicit = switches.implementations.get(site.key)
    chosen = [one for one in holding if one.name == explicit]
    claimants = chosen + [one for one in holding if one.name != explicit]
    if off_because or not is_on(site.key, switches):
        claimants = chosen
    return SiteVerdict(
        site=site,
        pieces=build_pieces(claimants, candidates.max_num_tokens),
        author=USER if off_because or switch else CORE,
        objections=objections,
        off_because=off_because,
        blocked_because=blocked,
        is_on=is_on(site.key, switches),
        switch=switch,
    )


def is_on(key: str, switches: OpSwitches) -> bool:
    """Whether other implementations than an explicit one may run for an op."""
    return key in switches.required or (switches.is_on and key not in switches.off)


def why_off(key: str, switches: OpSwitches) -> str:
    """Why native runs for an op by the user's wish; empty: it need not."""
    explicit = switches.implementations.get(key)
    if explicit == NATIVE:
        return f"--op {key}={NATIVE} was asked for"
    if explicit is not None or is_on(key, switches):
        return ""
    return f"--custom-ops {f'-{key}' if key in switches.off else 'none'} was asked for"


def fixed_switch(key: str, switches: OpSwitches) -> str:
    """The switch that says something of this op by its name; empty: there is none."""
    if key in switches.implementations:
        return f"--op {key}={switches.implementations[key]}"
    sign = "-" if key in switches.off else "+" if key in switches.required else ""
    return f"--custom-ops {sign}{key}" if sign else ""


def fixed_below(sites: Iterable[OpSite], switches: OpSwitches) -> dict[str, dict[str, str]]:
    """Path → ops inside it of which the user said something by their names."""
    fixed: dict[str, dict[str, str]] = {}
    for site in sites:
        if switch := fixed_switch(site.key, switches):
            for path in enclosing_paths(site.path):
                fixed.setdefault(path, {})[site.key] = switch
    return fixed
