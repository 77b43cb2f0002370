"""Plain data ↔ the contract's dataclasses, strictly: nothing unknown is passed over."""

from __future__ import annotations

import difflib
import functools
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T")


class UnusableData(ValueError):  # noqa: N818 - names a condition; never leaves the core
    """Plain data that does not fit.

    Args:
        problems: All of them, each beginning with its place.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


def to_plain(value: Any) -> Any:
    """JSON data, in the order of fields; sets are sorted, so that equal values look the same."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(one) for key, one in value.items()}
    if isinstance(value, Set):
        return sorted((to_plain(one) for one in value), key=str)
    if isinstance(value, list | tuple):
        return [to_plain(one) for one in value]
    return value


def read_plain(kind: type[T], plain: Any) -> tuple[T | None, tuple[str, ...]]:
    """The reverse; fields that are not stated keep their defaults.

    Returns:
        The value without its unknown keys, ``None`` where there cannot be one. And the problems,
        all with their places: unknown keys with the nearest known name, missing ones, wrong types.
    """
    found = tuple(_walk(kind, plain, ""))
    is_usable = all(one.is_unknown_key for one in found)
    return msgspec.convert(plain, kind) if is_usable else None, tuple(one.text for one in found)


def unknown_keys(kind: Any, plain: Any, place: str = "") -> Iterator[str]:
    """A sentence for each key that no field has, with its place and the nearest known name.

    Args:
        kind: What the data should be.
        plain: The data; what has the wrong type altogether is passed over.
        place: Of ``plain`` itself.
    """
    return (one.text for one in _walk(kind, plain, place) if one.is_unknown_key)


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that says a name is unknown."""
    known = list(names)
    near = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"


@dataclass(frozen=True, slots=True)
class _Problem:
    text: str
    is_unknown_key: bool = False


def _walk(kind: Any, plain: Any, place: str) -> Iterator[_Problem]:
    """What does not fit, inside out where there is an inside that could."""
    kind = _of_optional(kind, plain)
    arguments, origin = get_args(kind), get_origin(kind)
    if is_dataclass(kind) and isinstance(plain, dict):
        yield from _walk_fields(kind, plain, place)
    elif isinstance(plain, list) and origin in (tuple, list, frozenset, Sequence):
        for index, value in enumerate(plain):
            yield from _walk(arguments[0], value, f"{place}[{index}]")
    elif isinstance(plain, dict) and origin in (Mapping, dict):
        for key, value in plain.items():
            yield from _walk(arguments[1], value, f"{place}.{key}")
    else:
        try:
            msgspec.convert(plain, kind)
        except msgspec.ValidationError as exc:
            yield _Problem(_at(place, str(exc)))


def _walk_fields(kind: Any, plain: dict[str, Any], place: str) -> Iterator[_Problem]:
    hints = _hints(kind)
    for key, value in plain.items():
        here = f"{place}.{key}" if place else key
        if key in hints:
            yield from _walk(hints[key], value, here)
        else:
            yield _Problem(f"{here} is unknown{nearest(key, hints)}", is_unknown_key=True)
    for one in fields(kind):
        is_required = one.default is MISSING and one.default_factory is MISSING
        if is_required and one.name not in plain:
            yield _Problem(_at(place, f"Object missing required field `{one.name}`"))


def _of_optional(kind: Any, plain: Any) -> Any:
    """The one kind beside ``None`` where there is a value; other unions as they are."""
    if plain is None or get_origin(kind) not in (Union, types.UnionType):
        return kind
    others = [one for one in get_args(kind) if one is not types.NoneType]
    return others[0] if len(others) == 1 else kind


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """Types of fields, in the order of fields."""
    hints = get_type_hints(kind)
    return {one.name: hints[one.name] for one in fields(kind)}


def _at(place: str, what: str) -> str:
    return f"{place}: {what}" if place else what
