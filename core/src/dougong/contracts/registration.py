"""What a decorator or a hook hands over: data, judged later by one registry per engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MARKS_ATTRIBUTE = "__dougong_marks__"


class RegistrationKind(StrEnum):
    """What is registered."""

    OP = "op"  # a new op, with its own native implementation
    OP_CLASS = "op_class"  # an out-of-tree class for a known op
    KERNEL = "kernel"  # one conditional implementation of a known op
    MODEL = "model"  # an architecture
    QUANTIZATION = "quantization"  # a weight format


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a decorator leaves on the object it decorates; nothing else happens at that time.

    Attributes:
        kind: What is registered.
        key: The op's key, the architecture or the format.
        name: The implementation's own namespaced name (``"acme/rms_norm"``).
        details: Conditions and options, of a type the kind's owner knows.
    """

    kind: RegistrationKind
    key: str
    name: str
    details: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A mark with its object and its origin.

    Attributes:
        mark: As the decorator or hook gave it.
        target: The class or function; for a model an import string or a class.
        plugin: Entry-point name.
        distribution: Distribution and version, for messages (``"dougong-acme 1.2"``).
    """

    mark: Mark
    target: Any
    plugin: str
    distribution: str


def add_mark(target: Any, mark: Mark) -> None:
    """Leave ``mark`` on ``target`` itself; a subclass does not inherit it."""
    own = vars(target).get(MARKS_ATTRIBUTE, ()) if hasattr(target, "__dict__") else ()
    setattr(target, MARKS_ATTRIBUTE, (*own, mark))


def marks_of(target: Any) -> tuple[Mark, ...]:
    """Marks left on ``target`` itself, in order."""
    try:
        own = vars(target)
    except TypeError:  # no __dict__: nothing can have been marked
        return ()
    return tuple(own.get(MARKS_ATTRIBUTE, ()))


def marked_objects(namespaces: Iterable[dict[str, Any]]) -> list[tuple[Any, Mark]]:
    """Marked objects of some modules' dictionaries, each mark once, in order of appearance."""
    seen: set[tuple[int, Mark]] = set()
    found: list[tuple[Any, Mark]] = []
    for namespace in namespaces:
        for value in namespace.values():
            for mark in marks_of(value):
                if (id(value), mark) not in seen:
                    seen.add((id(value), mark))
                    found.append((value, mark))
    return found


def model_mark(architecture: str, *, alias_of: str | None = None) -> Mark:
    """The mark of an architecture; ``alias_of`` names another that it equals."""
    return Mark(kind=RegistrationKind.MODEL, key=architecture, name=architecture, details=alias_of)
