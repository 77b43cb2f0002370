"""A check: one function that asks the plugin, and judges what came back."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

CheckFunction = Callable[..., None]
_F = TypeVar("_F", bound=CheckFunction)

_found: dict[str, Check] = {}


@dataclass(frozen=True, slots=True)
class Check:
    """One check, by the id of its requirement.

    Attributes:
        id: Of the requirement, ``"ops.rms_norm"``: the profile, then the rest.
        run: ``(subject, judge)``, or ``(subject, judge, dtype)`` with ``per_dtype``.
        per_dtype: Run once for every compute dtype that the plugin claims.
    """

    id: str
    run: CheckFunction
    per_dtype: bool = False

    @property
    def profile(self) -> str:
        """Part of the id before the first dot."""
        return self.id.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Case:
    """A check with the dtype it is run for: what has one result.

    Attributes:
        check: Which.
        dtype: As torch names it (``"bfloat16"``); empty where the check has none.
    """

    check: Check
    dtype: str = ""

    @property
    def id(self) -> str:
        """``"ops.rms_norm[bfloat16]"``."""
        return f"{self.check.id}[{self.dtype}]" if self.dtype else self.check.id


def check(requirement: str, *, per_dtype: bool = False) -> Callable[[_F], _F]:
    """Mark a function as the check of a requirement; its module lies in ``suite``.

    Raises:
        ValueError: The requirement has a check already.
    """

    def mark(function: _F) -> _F:
        if requirement in _found and _found[requirement].run.__code__ is not function.__code__:
            raise ValueError(f"requirement {requirement!r} has two checks")
        _found[requirement] = Check(requirement, function, per_dtype)
        return function

    return mark


@cache
def all_checks() -> dict[str, Check]:
    """Every check by id, sorted by id."""
    suite: Any = importlib.import_module("dougong_conformance.suite")
    for module in pkgutil.iter_modules(suite.__path__, f"{suite.__name__}."):
        importlib.import_module(module.name)
    return dict(sorted(_found.items()))


def cases_of(one: Check, dtypes: tuple[str, ...]) -> Iterator[Case]:
    """A check's cases on a plugin that claims ``dtypes``."""
    if not one.per_dtype:
        yield Case(one)
        return
    for dtype in dtypes:
        yield Case(one, dtype)
