"""Registrations of ops judged all at once: what can be used, what cannot, what collides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dougong.contracts import PluginError, Registration, RegistrationKind
from dougong.describe import CandidateKind, OpCandidate
from dougong.errors import ContractError
from dougong.ops.catalog import OPS
from dougong.ops.custom_op import CustomOp
from dougong.ops.implementation import Implementation
from dougong.ops.judging import (
    class_problems,
    has_own_forward_oot,
    kernel_problems,
    key_problems,
    op_problems,
)
from dougong.ops.marks import KernelTerms

_WHAT = {
    RegistrationKind.OP: "op",
    RegistrationKind.OP_CLASS: "class",
    RegistrationKind.KERNEL: "kernel",
}


class Judge:
    """Judges all registrations of ops: what is usable, and every problem.

    Attributes:
        ops: Op key → class; the catalogue and the plugins' own.
        implementations: In order of registration.
        notes: What the operator should know of registrations that change nothing.
    """

    def __init__(self) -> None:
        self.ops: dict[str, type[CustomOp]] = dict(OPS)
        self.implementations: list[Implementation] = []
        self.notes: list[str] = []
        self._refused_keys: set[str] = set()
        self._owners: dict[tuple[str, str], Registration] = {}
        self._problems: dict[str, list[str]] = {}
        self._errors: list[PluginError] = []  # collisions
        self._plugins: dict[str, str] = {}

    def take(self, registrations: Iterable[Registration]) -> None:
        """Judge these. Ops come first: an implementation may have been registered before its op."""
        for registration in sorted(_distinct(registrations), key=_is_implementation):
            if _is_implementation(registration):
                self._take_implementation(registration)
            else:
                self._take_op(registration)

    def raise_problems(self) -> None:
        """Raise what is wrong, if anything is.

        Raises:
            PluginError: Every problem, by wheel, and every collision.
        """
        errors = list(self._errors)
        for wheel, problems in self._problems.items():
            subject, plugin = f"what {wheel} registers", self._plugins[wheel]
            errors.append(ContractError(subject, tuple(problems), plugin=plugin))
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise PluginError("\n".join(map(str, errors)), plugin=errors[0].plugin)

    def _take_op(self, registration: Registration) -> None:
        key, target = registration.mark.key, registration.target
        problems = list(op_problems(target, OPS))
        if problems:
            self._refused_keys.add(key)
            self._refuse(registration, problems)
        elif self._is_first(registration, "op", key):
            self.ops[key] = target

    def _take_implementation(self, registration: Registration) -> None:
        mark, target = registration.mark, registration.target
        if mark.key in self._refused_keys:
            return  # said already, of the op itself
        is_class = mark.kind is RegistrationKind.OP_CLASS
        op = self.ops.get(mark.key)
        if op is None:
            problems = list(key_problems(mark.key, self.ops))
        elif is_class:
            problems = list(class_problems(target, op, mark.details))
        else:
            problems = list(kernel_problems(target, mark.details, op))
        if problems or op is None:
            self._refuse(registration, problems)
            return
        if is_class and not self._is_first(registration, "class of op", mark.key):
            return
        name = _name(registration)
        if not self._is_first(registration, "implementation", name):
            return
        if is_class and not has_own_forward_oot(target, op):
            self.notes.append(
                f"{registration.distribution}: class {name} of op {mark.key} has no forward_oot of "
                "its own, so it is no override and native runs"
            )
            return
        self.implementations.append(_implementation(registration, name))

    def _is_first(self, registration: Registration, what: str, name: str) -> bool:
        first = self._owners.setdefault((what, name), registration)
        if first is registration:
            return True
        if first.distribution == registration.distribution:
            message = (
                f"{first.distribution} registers {what} {name!r} twice, as {_called(first)} and as "
                f"{_called(registration)}. Rename one of them or remove it."
            )
        else:
            message = (
                f"{what} {name!r} is registered by {first.distribution} ({_called(first)}) and by "
                f"{registration.distribution} ({_called(registration)}). Rename one, uninstall one "
                "of the two wheels, or exclude one with DOUGONG_PLUGINS."
            )
        self._errors.append(PluginError(message, plugin=registration.plugin))
        return False

    def _refuse(self, registration: Registration, problems: Iterable[str]) -> None:
        self._plugins[registration.distribution] = registration.plugin
        what = f"{_WHAT[registration.mark.kind]} {_name(registration)}"
        listed = self._problems.setdefault(registration.distribution, [])
        listed.extend(f"{what} ({_called(registration)}): {problem}" for problem in problems)


def _is_implementation(registration: Registration) -> bool:
    return registration.mark.kind is not RegistrationKind.OP


def _distinct(registrations: Iterable[Registration]) -> Iterator[Registration]:
    seen: set[tuple[int, object]] = set()
    for registration in registrations:
        identity = (id(registration.target), registration.mark)
        if registration.mark.kind in _WHAT and identity not in seen:
            seen.add(identity)
            yield registration


def _implementation(registration: Registration, name: str) -> Implementation:
    mark = registration.mark
    is_class = mark.kind is RegistrationKind.OP_CLASS
    terms = mark.details if isinstance(mark.details, KernelTerms) else KernelTerms()
    candidate = OpCandidate(
        key=mark.key,
        name=name,
        origin=registration.distribution,
        kind=CandidateKind.OP_CLASS if is_class else CandidateKind.KERNEL,
        when=terms.when,
        tokens=terms.tokens,
        priority=terms.priority,
    )
    mutates = registration.target.may_mutate if is_class else terms.mutates
    return Implementation(candidate=candidate, target=registration.target, mutates=mutates)


def _name(registration: Registration) -> str:
    """Its own, or for a class that was given none its plugin's and the class's."""
    return registration.mark.name or f"{registration.plugin}/{registration.target.__name__}"


def _called(registration: Registration) -> str:
    target = registration.target
    return f"{getattr(target, '__module__', '?')}.{getattr(target, '__qualname__', target)}"
