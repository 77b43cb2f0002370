"""An implementation of an op as planning sees it: names and conditions, no code."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from dougong.contracts import Needs, TokenRange


class CandidateKind(StrEnum):
    """How an implementation of an op is written."""

    OP_CLASS = "class"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCandidate:
    """One implementation of an op that is not its native one.

    Attributes:
        key: The op.
        name: Of the implementation.
        origin: Distribution and version that brought it.
        kind: Out-of-tree classes come before kernels.
        when: Conditions.
        tokens: Token counts it is meant for; ``None``: any.
        priority: Higher is tried first; equal ones in order of registration.
    """

    key: str
    name: str
    origin: str
    kind: CandidateKind = CandidateKind.KERNEL
    when: Needs = field(default_factory=Needs)
    tokens: TokenRange | None = None
    priority: int = 0
