"""Plugin classes whose instances answer the core only what their contract declares."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

_C = TypeVar("_C")
# What asks: the core. What a plugin asks of itself, and torch and the interpreter, are free.
_CORE = "dougong."
_PLUGIN_SIDE = ("dougong.cpu", "dougong.reference", "dougong.contracts", "dougong.testing")


class UndeclaredQuestionError(AttributeError):
    """The core asked something that no contract declares."""


def declared_names(contract: type) -> frozenset[str]:
    """Names that a contract has: methods, attributes, annotations."""
    found = {name for cls in contract.__mro__ for name in vars(cls)}
    for cls in contract.__mro__:
        found |= set(vars(cls).get("__annotations__", {}))
    return frozenset(found)


def contract_only(cls: type[_C], contract: type, asked: set[str], *, more: str = "") -> type[_C]:
    """A subclass that refuses what ``contract`` does not declare when the core asks for it.

    Args:
        cls: A plugin's class.
        contract: Its contract.
        asked: Takes ``"Contract.name"`` of everything that the core asked.
        more: A further name that is allowed (a planted violation's own guard).
    """
    allowed = declared_names(contract) | {more}

    def guarded(self: Any, name: str) -> Any:
        if not name.startswith("__"):
            asker = str(sys._getframe(1).f_globals.get("__name__", ""))
            if asker.startswith(_CORE) and not asker.startswith(_PLUGIN_SIDE):
                if name not in allowed:
                    raise UndeclaredQuestionError(
                        f"{asker} asks {contract.__name__} for {name!r}, which it does not declare"
                    )
                asked.add(f"{contract.__name__}.{name}")
        return super(made, self).__getattribute__(name)

    made: Any = type(
        cls.__name__, (cls,), {"__getattribute__": guarded, "__module__": cls.__module__}
    )
    result: type[_C] = made
    return result
