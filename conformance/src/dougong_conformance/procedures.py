"""Procedures: what checks may ask for, run where the plugin is loaded.

A module of ``drivers`` holds the procedures of one room and marks them. They call the plugin
through the published contracts and hand over what came back: they judge nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dougong_conformance.session import Session

Procedure = Callable[..., Any]
_F = TypeVar("_F", bound=Procedure)

_found: dict[str, Procedure] = {}


def procedure(name: str) -> Callable[[_F], _F]:
    """Mark ``(session, **arguments)`` as callable from checks by ``name`` (``"ops.run"``).

    Raises:
        ValueError: Two functions have one name.
    """

    def mark(function: _F) -> _F:
        if name in _found and _found[name].__code__ is not function.__code__:
            raise ValueError(f"two procedures are named {name!r}")
        _found[name] = function
        return function

    return mark


@cache
def all_procedures() -> dict[str, Procedure]:
    """Every procedure by name."""
    drivers: Any = importlib.import_module("dougong_conformance.drivers")
    for module in pkgutil.iter_modules(drivers.__path__, f"{drivers.__name__}."):
        importlib.import_module(module.name)
    return dict(sorted(_found.items()))


def run_procedure(session: Session, name: str, arguments: dict[str, Any]) -> Any:
    """Run one by name.

    Raises:
        KeyError: There is none; a check and its driver do not fit.
        Exception: Whatever it raises.
    """
    return all_procedures()[name](session, **arguments)
