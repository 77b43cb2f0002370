"""Candidates of an op at one place of the model: who may run, and who may not and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dougong.contracts import BindRequest, Capabilities, KernelReport
from dougong.contracts.rank_plan import NATIVE
from dougong.describe import CandidateKind, OpCandidate, OpSite
from dougong.planner.inputs import PlanInputs
from dougong.planner.libraries import loaded_names
from dougong.planner.op_pieces import Claimant
from dougong.planner.provenance import origins

WEIGHT_FORMAT = "weight_format"
"""Property of ops with a weight."""

_PROJECTION = "linear"


def enclosing_paths(path: str) -> Iterator[str]:
    """Paths of the modules around one, outermost first."""
    parts = path.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts)))


@dataclass(frozen=True, slots=True)
class OpCandidates:
    """Every candidate, in the order they are tried.

    Attributes:
        by_key: Out-of-tree classes first, then kernels by priority.
        request: Device and engine, as conditions see them.
        failed: Implementation → how it failed when it was first used.
        origins: Property of the checkpoint → where its value came from.
        max_num_tokens: Of the largest step.
        around_adapters: Paths of ops that have a projection inside to which adapters add.
    """

    by_key: Mapping[str, tuple[OpCandidate, ...]]
    request: BindRequest
    failed: Mapping[str, str]
    origins: Mapping[str, str]
    max_num_tokens: int
    around_adapters: frozenset[str] = frozenset()

    @classmethod
    def of(cls, inputs: PlanInputs) -> OpCandidates:
        """As the inputs have them."""
        return cls(
            by_key=_ordered(inputs.candidates.ops),
            request=bind_request(inputs),
            failed=inputs.candidates.failed,
            origins=origins(inputs),
            max_num_tokens=inputs.config.scheduler.max_num_batched_tokens,
            around_adapters=_around_adapters(inputs),
        )

    @classmethod
    def on_device(
        cls, ops: Iterable[OpCandidate], request: BindRequest, max_num_tokens: int
    ) -> OpCandidates:
        """For ops that belong to no model."""
        return cls(_ordered(ops), request, {}, {}, max_num_tokens)

    def get(self, key: str) -> tuple[OpCandidate, ...]:
        """Of one op."""
        return self.by_key.get(key, ())

    def objection(self, candidate: OpCandidate, site: OpSite) -> str:
        """Why a candidate cannot run at one place; empty where it can."""
        if candidate.name in self.failed:
            return f"failed at its first use: {self.failed[candidate.name]}"
        if hidden := self.hides_adapters(site):
            return hidden
        unmet = self.unmet(candidate, site)
        if not unmet and not claimant(candidate).is_reached(self.max_num_tokens):
            return (
                f"is meant for {candidate.tokens} tokens, and a step has at most "
                f"{self.max_num_tokens}"
            )
        return unmet

    def hides_adapters(self, site: OpSite) -> str:
        """Why nobody may do the work of the ops inside one; empty: adapters are no reason."""
        if site.path not in self.around_adapters:
            return ""
        return (
            "it computes a projection inside, to which adapters add (--enable-lora); its parts run "
            "one by one"
        )

    def unmet(self, candidate: OpCandidate, site: OpSite) -> str:
        """Conditions that do not hold at one place, with the cause where the checkpoint is it."""
        stored = site.stored_as
        if stored and site.properties[WEIGHT_FORMAT] == stored and not names_format(candidate):
            return f"takes plain weights; these stay in {stored}"
        return "; ".join(
            one.reason + (f" ({self.origins[one.subject]})" if one.subject in self.origins else "")
            for one in candidate.when.unmet(self.request, site.properties)
        )

    def names(self, key: str) -> str:
        """What may be named for an op, in words."""
        return ", ".join((*(one.name for one in self.get(key)), NATIVE))


def names_format(candidate: OpCandidate) -> bool:
    """Whether an implementation says how the weight may be stored; others take plain ones."""
    return any(name == WEIGHT_FORMAT for name, _ in candidate.when.properties)


def claimant(candidate: OpCandidate) -> Claimant:
    """A candidate as the token pieces know it."""
    return Claimant(candidate.name, candidate.tokens)


def bind_request(inputs: PlanInputs) -> BindRequest:
    """Device and engine, as conditions see them."""
    return device_request(
        inputs.capabilities,
        inputs.config.compute.dtype,
        inputs.candidates.kernels,
        inputs.environment,
    )


def device_request(
    capabilities: Capabilities,
    dtype: str,
    kernels: KernelReport | None,
    environment: Mapping[str, str],
) -> BindRequest:
    """What conditions are held against on one device.

    Args:
        capabilities: Of the device.
        dtype: Compute dtype.
        kernels: ``None``: nobody has tried to load them.
        environment: Variables that are set.
    """
    claims, facts = capabilities.claims, capabilities.facts
    return BindRequest(
        dtype=dtype,
        features=claims.features,
        limits=claims.limits,
        driver_version=facts.driver_version,
        runtime_version=facts.runtime_version,
        environment=environment,
        loaded=loaded_names(kernels),
        missing={} if kernels is None else kernels.missing,
    )


def told(objections: Mapping[str, str]) -> Iterable[str]:
    """``NAME: why``, one each."""
    return (f"{name}: {why}" for name, why in objections.items())


def _around_adapters(inputs: PlanInputs) -> frozenset[str]:
    if inputs.config.lora is None:
        return frozenset()
    sites = {site.path for site in inputs.needs.ops}
    return frozenset(
        path
        for site in inputs.needs.ops
        if site.key == _PROJECTION
        for path in enclosing_paths(site.path)
        if path in sites
    )


def _ordered(ops: Iterable[OpCandidate]) -> dict[str, tuple[OpCandidate, ...]]:
    by_key: dict[str, list[OpCandidate]] = {}
    for candidate in sorted(ops, key=_order):
        by_key.setdefault(candidate.key, []).append(candidate)
    return {key: tuple(candidates) for key, candidates in by_key.items()}


def _order(candidate: OpCandidate) -> tuple[bool, int]:
    return candidate.kind is not CandidateKind.OP_CLASS, -candidate.priority
