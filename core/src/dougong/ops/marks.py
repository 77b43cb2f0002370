"""Decorators a plugin uses. They only mark; the loader collects the marks, `OpRegistry` judges."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dougong.contracts import Mark, Needs, RegistrationKind, TokenRange, token_bounds
from dougong.contracts.registration import add_mark
from dougong.errors import ContractError

_T = TypeVar("_T")
_NAMESPACED = re.compile(r"[^\s,=/]+(/[^\s,=/]+)+")


@dataclass(frozen=True, slots=True)
class KernelTerms:
    """When an implementation is meant to run.

    Attributes:
        when: Conditions.
        tokens: Token counts; ``None``: any.
        priority: Higher is tried first.
        mutates: Arguments of the op that it overwrites.
    """

    when: Needs = field(default_factory=Needs)
    tokens: TokenRange | None = None
    priority: int = 0
    mutates: tuple[str, ...] = ()


def register_kernel(
    key: str,
    *,
    name: str,
    when: Needs | None = None,
    tokens: TokenRange | None = None,
    priority: int = 0,
    mutates: Iterable[str] = (),
) -> Callable[[_T], _T]:
    """Mark one conditional implementation of an op; nothing is registered before the loader reads
    it.

    A decorated **function** is called as ``fn(*op_args, *op.kernel_args())``: the op's arguments,
    then its weights and constants, by position. A decorated **class** is a prepared kernel:
    ``cls(op)`` is made once per op after its weights are loaded (to pack them, to keep pointers)
    and the object is called with the op's arguments alone.

    Args:
        key: The op's key.
        name: Namespaced and unique (``"acme/rms_norm"``).
        when: Conditions; ``None``: always.
        tokens: Token counts of a step it is for: `AtMost`, `AtLeast` or `Between`; ``None``: any.
            Rows of the op's first argument are counted.
        priority: Higher is tried first; equal ones in order of registration.
        mutates: Arguments of the op that it overwrites; the op must allow it
            (`CustomOp.may_mutate`).

    Raises:
        ContractError: Something here is not what it must be; all of it is listed.
    """
    names = (mutates,) if isinstance(mutates, str) else tuple(mutates)
    terms = KernelTerms(Needs() if when is None else when, tokens, priority, names)

    def mark(target: _T) -> _T:
        problems = [*_name_problems(name), *_terms_problems(terms)]
        if not callable(target):
            problems.append(f"{target!r} cannot be called; mark a function or a class")
        return _marked(target, RegistrationKind.KERNEL, key, name, problems, terms)

    return mark


def mark_class(key: str, name: str | None, when: Needs | None = None) -> Callable[[_T], _T]:
    """See `CustomOp.register_oot`."""
    terms = KernelTerms(Needs() if when is None else when)

    def mark(target: _T) -> _T:
        problems = [] if name is None else list(_name_problems(name))
        problems.extend(_terms_problems(terms))
        if not isinstance(target, type):
            problems.append(
                f"{_called(target)} is no class; a function is registered with register_kernel"
            )
        return _marked(target, RegistrationKind.OP_CLASS, key, name or "", problems, terms)

    return mark


def register_op(cls: _T) -> _T:
    """Mark a plugin's own op: a `CustomOp` with a namespaced ``key``, a ``forward_native`` and an
    ``example``, which is run when the op is registered.

    Raises:
        ContractError: It is no class, or has no namespaced key.
    """
    key = getattr(cls, "key", None)
    problems = []
    if not isinstance(cls, type):
        problems.append(f"{_called(cls)} is no class")
    elif not isinstance(key, str) or not is_namespaced(key):
        problems.append(
            f"its key is {key!r}; a plugin's own op has a namespaced one, as in 'acme/fast_norm'"
        )
    return _marked(cls, RegistrationKind.OP, str(key), str(key), problems)


def is_namespaced(name: str) -> bool:
    """Whether it reads ``"vendor/name"``, without what the command line uses between names."""
    return _NAMESPACED.fullmatch(name) is not None


def _name_problems(name: object) -> Iterator[str]:
    if not isinstance(name, str) or not is_namespaced(name):
        yield (
            f"name={name!r} is not namespaced; write it as in 'acme/rms_norm', without spaces, "
            "commas and '='"
        )


def _terms_problems(terms: KernelTerms) -> Iterator[str]:
    if not isinstance(terms.when, Needs):
        yield f"when={terms.when!r} is no Needs(...)"
    if terms.tokens is not None:
        if not isinstance(terms.tokens, TokenRange):
            yield f"tokens={terms.tokens!r} is no AtMost, AtLeast or Between"
        else:
            fewest, most = token_bounds(terms.tokens)
            if fewest < 1 or (most is not None and most < 1):
                yield f"tokens={terms.tokens!r} holds for a step of no tokens; the least is 1"
    if not isinstance(terms.priority, int):
        yield f"priority={terms.priority!r} is no int"
    if wrong := [name for name in terms.mutates if not isinstance(name, str)]:
        yield f"mutates names arguments of the op; {wrong!r} are no names"


def _marked(
    target: _T,
    kind: RegistrationKind,
    key: str,
    name: str,
    problems: list[str],
    details: KernelTerms | None = None,
) -> _T:
    """``target`` with its mark, or every problem at once."""
    subject = f"{_called(target)}, registered for op {key!r},"
    if problems:
        raise ContractError(subject, tuple(problems))
    try:
        add_mark(target, Mark(kind=kind, key=key, name=name, details=details))
    except (AttributeError, TypeError) as exc:
        problem = f"it can carry no mark ({exc}); wrap it in a Python function"
        raise ContractError(subject, (problem,)) from exc
    return target


def _called(target: Any) -> str:
    """An object's import path, or what it looks like."""
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    return f"{module}.{name}" if module and name else repr(target)
