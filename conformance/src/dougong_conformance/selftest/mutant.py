"""A mutant: a plugin with one defect, made of a good one; a witness: with one legal difference."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from dougong_conformance.session import PluginUnderTest

Change = Callable[[PluginUnderTest], PluginUnderTest]
_F = TypeVar("_F", bound=Change)

_mutants: dict[str, Mutant] = {}
_witnesses: dict[str, Mutant] = {}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a plugin.

    Attributes:
        id: ``"O01"``.
        defect: What is wrong, as a vendor might have done it; of a witness: what differs.
        killer: Requirement whose check must reject it; empty for a witness.
        apply: Makes the changed plugin; leaves the good one as it is.
        dtype: The case in which it shows where not every dtype shows it; empty: any.
        ends: Outcomes that count as rejected (``fail`` unless it kills its process or hangs).
        needs_process: Must run in a process of its own (it crashes, hangs or patches).
        mode: How the base has to run for the defect to show, where it is the simulated device:
            ``"eager"``, ``"lazy"`` (nothing runs before somebody waits) or ``"thread"``.
        profiles: Of a witness: profiles, or beginnings of checks' ids, that see the difference.
    """

    id: str
    defect: str
    killer: str
    apply: Change
    dtype: str = ""
    ends: tuple[str, ...] = ("fail",)
    needs_process: bool = False
    mode: str = "eager"
    profiles: tuple[str, ...] = ()


def mutant(
    id: str,
    defect: str,
    *,
    killer: str,
    dtype: str = "",
    ends: tuple[str, ...] = ("fail",),
    needs_process: bool = False,
    mode: str = "eager",
) -> Callable[[_F], _F]:
    """Mark a function that plants one defect in a plugin.

    Raises:
        ValueError: The id is taken.
    """

    def mark(function: _F) -> _F:
        _add(_mutants, Mutant(id, defect, killer, function, dtype, ends, needs_process, mode))
        return function

    return mark


def witness(id: str, difference: str, *profiles: str, dtype: str = "") -> Callable[[_F], _F]:
    """Mark a function that makes a plugin differ in a way that the specification allows.

    Args:
        id: ``"V01"``.
        difference: What differs.
        profiles: See `Mutant`.
        dtype: The one that is enough for the fast gate; empty: all.

    Raises:
        ValueError: The id is taken.
    """

    def mark(function: _F) -> _F:
        _add(_witnesses, Mutant(id, difference, "", function, dtype, profiles=profiles))
        return function

    return mark


def _add(table: dict[str, Mutant], one: Mutant) -> None:
    taken = table.get(one.id)
    if taken is not None and taken.apply.__code__ is not one.apply.__code__:
        raise ValueError(f"{one.id} is taken: {taken.defect}")
    table[one.id] = one


def defined(id: str) -> Mutant:
    """A mutant or witness of a module that was imported already.

    Raises:
        KeyError: There is none of that id.
    """
    return {**_witnesses, **_mutants}[id]


@cache
def _load() -> None:
    package: Any = importlib.import_module("dougong_conformance.selftest.mutants")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    importlib.import_module("dougong_conformance.selftest.witnesses")


def all_mutants() -> dict[str, Mutant]:
    """Every mutant by id."""
    _load()
    return dict(sorted(_mutants.items()))


def all_witnesses() -> dict[str, Mutant]:
    """Every witness by id."""
    _load()
    return dict(sorted(_witnesses.items()))
