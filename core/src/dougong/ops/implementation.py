"""A registered implementation, with the code behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dougong.describe import CandidateKind, OpCandidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """One registered implementation, and the code behind it.

    Attributes:
        candidate: What planning sees of it.
        target: Function, class of prepared kernels, or out-of-tree class.
        mutates: Arguments of the op that it may overwrite.
    """

    candidate: OpCandidate
    target: Any
    mutates: tuple[str, ...] = ()

    @property
    def is_op_class(self) -> bool:
        """Whether the op itself is made of it."""
        return self.candidate.kind is CandidateKind.OP_CLASS

    @property
    def is_prepared(self) -> bool:
        """Whether it is made once per op, rather than called with its weights each time."""
        return isinstance(self.target, type)
