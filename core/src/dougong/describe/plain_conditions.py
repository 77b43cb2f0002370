"""Conditions as plain data, as they stand in a capability file.

``{"dtype": ["float16"], "hidden_size": {"multiple_of": 64}, "activation": "silu"}``: every key that
`Needs` does not have itself is a property of the op; a plain value is what it must be, a list what
it must be one of.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dougong.contracts import (
    AtLeast,
    AtMost,
    Between,
    Constraint,
    MultipleOf,
    Needs,
    OneOf,
    Property,
    TokenRange,
    token_bounds,
)
from dougong.describe.plain_data import UnusableData, nearest

_OWN = ("dtype", "features", "library", "driver", "runtime", "env", "limits")


@dataclass(frozen=True, slots=True)
class Undecidable:
    """A plugin's own kind of constraint, known here by its words only: it holds for no value."""

    text: str

    def accepts(self, value: Property) -> bool:
        """Never: what cannot be evaluated is not claimed."""
        return False

    def __str__(self) -> str:
        return self.text


def needs_to_plain(needs: Needs) -> dict[str, Any]:
    """What is asked; nothing for what is not."""
    plain: dict[str, Any] = {
        "dtype": sorted(needs.dtype),
        "features": sorted(needs.features),
        "library": needs.library,
        "driver": needs.driver,
        "runtime": needs.runtime,
        "env": dict(needs.env),
        "limits": {name: constraint_to_plain(one) for name, one in needs.limits},
    }
    properties = {name: constraint_to_plain(one) for name, one in needs.properties}
    return {name: value for name, value in plain.items() if value} | properties


_NEAR = 0.8  # own keys are single words; an op's property such as "in_features" never is


def needs_from_plain(plain: Mapping[str, Any], known: Collection[str] | None = None) -> Needs:
    """The reverse.

    Args:
        plain: As it was written.
        known: Properties of the op; ``None``: nobody here knows them, so that any will do.

    Raises:
        UnusableData: With everything that cannot be understood, each beginning with its key.
    """
    settled: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in plain.items():
        try:
            settled[name] = _part(name, value, known)
        except ValueError as exc:
            problems.append(str(exc))
    if problems:
        raise UnusableData(problems)
    return Needs(**settled)


def _part(name: str, value: Any, known: Collection[str] | None) -> Any:
    if name in _OWN:
        return _own_part(name, value)
    if known is not None:
        if name not in known:
            raise ValueError(f"{name} is no property of this op{nearest(name, (*known, *_OWN))}")
    elif "_" not in name and (near := difflib.get_close_matches(name, _OWN, n=1, cutoff=_NEAR)):
        raise ValueError(f"{name} is unknown: did you mean {near[0]!r}?")
    elif not name.isidentifier() or name == "self":
        raise ValueError(f"{name!r} cannot be the name of a property")
    return constraint_from_plain(name, value)


def _own_part(name: str, value: Any) -> Any:
    if name == "limits":
        return {
            key: constraint_from_plain(f"{name}.{key}", one)
            for key, one in _mapping(name, value).items()
        }
    if name == "env":
        settings = _mapping(name, value)
        if wrong := [key for key, one in settings.items() if not isinstance(one, str)]:
            raise ValueError(f"{name}.{wrong[0]} is {settings[wrong[0]]!r}; it takes a string")
        return settings
    if name in ("dtype", "features"):
        values = value if isinstance(value, list) else [value]
        return [_text(name, one) for one in values]
    text = _text(name, value)
    if name in ("driver", "runtime"):
        return _bound(name, text)
    return text


def constraint_to_plain(constraint: Constraint) -> Any:
    """One constraint; a kind of which the core knows nothing becomes its words."""
    match constraint:
        case AtMost(limit):
            return {"at_most": limit}
        case AtLeast(limit):
            return {"at_least": limit}
        case Between(low, high):
            return {"between": [low, high]}
        case MultipleOf(factor):
            return {"multiple_of": factor}
        case OneOf() if len(constraint.values) == 1:
            return next(iter(constraint.values))
        case OneOf():
            return sorted(constraint.values, key=str)
    return {"undecidable": str(constraint)}


def _bound(name: str, text: str) -> str:
    """As `Needs` itself reads it, so that the message has its place."""
    try:
        Needs(driver=text)
    except ValueError as exc:
        raise ValueError(f"{name}: {exc}") from exc
    return text


def constraint_from_plain(name: str, plain: Any) -> Constraint:
    """The reverse.

    Raises:
        ValueError: It cannot be understood; the message begins with ``name``.
    """
    if isinstance(plain, bool | int | str):
        return OneOf(plain)
    if isinstance(plain, list):
        if plain and all(isinstance(one, bool | int | str) for one in plain):
            return OneOf(*plain)
    elif isinstance(plain, dict) and len(plain) == 1:
        try:
            found = _limiting(*next(iter(plain.items())))
        except ValueError as exc:
            raise ValueError(f"{name}: {exc}") from exc
        if found is not None:
            return found
    raise ValueError(
        f"{name} is {plain!r}; write a value, a list of values, or one of "
        '{"at_most": N}, {"at_least": N}, {"between": [N, M]}, {"multiple_of": N}'
    )


def tokens_to_plain(tokens: TokenRange | None) -> Any:
    """A range of token counts; ``None`` for any."""
    return None if tokens is None else constraint_to_plain(tokens)


def tokens_from_plain(plain: Any) -> TokenRange | None:
    """The reverse.

    Raises:
        ValueError: It is no range.
    """
    if plain is None:
        return None
    if isinstance(plain, dict) and len(plain) == 1:
        try:
            found = _ranged(*next(iter(plain.items())))
        except ValueError as exc:
            raise ValueError(f"tokens: {exc}") from exc
        if found is not None:
            if token_bounds(found)[0] < 1 or token_bounds(found)[1] == 0:
                raise ValueError(f"tokens is {plain!r}; a step has at least 1 token")
            return found
    raise ValueError(
        f'tokens is {plain!r}; write {{"at_most": N}}, {{"at_least": N}} or {{"between": [N, M]}}'
    )


def _limiting(kind: str, value: Any) -> Constraint | None:
    if kind == "multiple_of" and _is_number(value):
        return MultipleOf(value)
    if kind == "undecidable" and isinstance(value, str) and value.strip():
        return Undecidable(value)
    return _ranged(kind, value)


def _ranged(kind: str, value: Any) -> TokenRange | None:
    if kind == "at_most" and _is_number(value):
        return AtMost(value)
    if kind == "at_least" and _is_number(value):
        return AtLeast(value)
    if kind == "between" and isinstance(value, list) and len(value) == 2:
        return Between(*value) if all(map(_is_number, value)) else None
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {value!r}; it takes an object")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} is {value!r}; it takes a string")
    return value
