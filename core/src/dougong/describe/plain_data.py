"""Plain data ↔ the contract's dataclasses, strictly: nothing unknown is passed over."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T")


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


def from_plain(kind: type[T], plain: Any) -> T:
    """The reverse; fields that are not stated keep their defaults.

    Raises:
        ValueError: Unknown keys, all of them with their places and the nearest known name; else the
            first value of a wrong type, with its place.
    """
    if unknown := list(_unknown_keys(kind, plain, "")):
        raise ValueError("; ".join(unknown))
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as exc:
        what, _, where = str(exc).partition(" - at `$")
        place = where.rstrip("`").lstrip(".")
        raise ValueError(f"{place}: {what}" if place else what) from exc


def _unknown_keys(kind: Any, plain: Any, place: str) -> Iterator[str]:
    if is_dataclass(kind) and isinstance(plain, dict):
        hints = get_type_hints(kind)
        names = [field.name for field in fields(kind)]
        for key, value in plain.items():
            here = f"{place}.{key}" if place else str(key)
            if key in names:
                yield from _unknown_keys(hints[key], value, here)
            else:
                yield f"{here} is unknown{_nearest(str(key), names)}"
        return
    arguments = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        for one in arguments:
            yield from _unknown_keys(one, plain, place)
    elif isinstance(plain, list) and arguments:
        for index, value in enumerate(plain):
            yield from _unknown_keys(arguments[0], value, f"{place}[{index}]")
    elif isinstance(plain, dict) and len(arguments) == 2:
        for key, value in plain.items():
            yield from _unknown_keys(arguments[1], value, f"{place}.{key}")


def _nearest(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f": did you mean {near[0]!r}?" if near else f"; known: {', '.join(names)}"
