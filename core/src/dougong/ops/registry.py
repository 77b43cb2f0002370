"""Ops and implementations of one engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager

from dougong.contracts import OpAssignment, Registration
from dougong.describe import OpCandidate
from dougong.ops.custom_op import CustomOp
from dougong.ops.implementation import Implementation
from dougong.ops.overrides import overriding
from dougong.ops.registering import Judge


class OpRegistry:
    """Ops and implementations of one engine.

    Attributes:
        ops: Op key → class; the catalogue and the plugins' own.
        notes: What the operator should know of registrations that change nothing.
    """

    def __init__(
        self,
        ops: Mapping[str, type[CustomOp]],
        implementations: Iterable[Implementation],
        notes: Iterable[str] = (),
    ) -> None:
        self.ops = dict(ops)
        self.notes = tuple(notes)
        self._found = {(one.candidate.key, one.candidate.name): one for one in implementations}
        self._classes = {
            one.candidate.key: one.target for one in self._found.values() if one.is_op_class
        }

    @classmethod
    def from_registrations(cls, registrations: Iterable[Registration]) -> OpRegistry:
        """Judge all registrations of ops at once; other kinds are passed over.

        The same object registered twice counts once.

        Raises:
            PluginError: Registrations that cannot be used. Every problem is listed, by wheel; where
                two wheels claim one name, one op key or one op's class, both are named.
        """
        judge = Judge()
        judge.take(registrations)
        judge.raise_problems()
        return cls(judge.ops, judge.implementations, judge.notes)

    @property
    def keys(self) -> frozenset[str]:
        """Every op, plugins' own included."""
        return frozenset(self.ops)

    def candidates(self) -> tuple[OpCandidate, ...]:
        """Every implementation but the native ones, in order of registration."""
        return tuple(one.candidate for one in self._found.values())

    def find(self, key: str, name: str) -> Implementation | None:
        """The implementation of an op that has a name."""
        return self._found.get((key, name))

    def overriding(self, assignments: Iterable[OpAssignment]) -> AbstractContextManager[None]:
        """Build a model inside this: its ops are made of the out-of-tree classes a plan names.

        Args:
            assignments: Of a plan; kernels in it have no say here.
        """
        found = (
            self.find(one.key, piece.implementation) for one in assignments for piece in one.pieces
        )
        classes = {one.candidate.key: one for one in found if one and one.is_op_class}
        return overriding(
            {key: one.target for key, one in classes.items()},
            {key: one.candidate.name for key, one in classes.items()},
            {key: one.candidate.when.properties for key, one in classes.items()},
        )

    def is_out_of_tree(self, op: CustomOp) -> bool:
        """Whether an op was made of a class that somebody registered in its place."""
        return isinstance(op, self._classes.get(op.key, ()))
