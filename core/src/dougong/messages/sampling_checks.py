"""What a sampling parameter may be; each check names the field it refuses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dougong.errors import RequestError


def check_is(field: str, value: object, kind: type | tuple[type, ...], wanted: str) -> None:
    """Refuse a value of another type; ``True`` and ``False`` are no numbers here.

    Raises:
        RequestError: Names the field.
    """
    if isinstance(value, bool) or not isinstance(value, kind):
        raise RequestError(
            f"{field}={value!r} is of type {type(value).__name__}; it takes {wanted}.", field=field
        )


def check(field: str, value: object, holds: bool, wanted: str) -> None:
    """Refuse a value for which the condition does not hold.

    Raises:
        RequestError: Names the field.
    """
    if not holds:
        raise RequestError(f"{field}={value} is out of range; it takes {wanted}.", field=field)


def check_number(field: str, value: float, lowest: float, highest: float) -> None:
    """Refuse a number outside ``lowest`` to ``highest``; NaN is outside.

    Raises:
        RequestError: Names the field.
    """
    check(field, value, lowest <= value <= highest, f"from {lowest:g} to {highest:g}")


def check_length(field: str, values: Sequence[object], limit: int, what: str) -> None:
    """Refuse a list that is too long.

    Raises:
        RequestError: Names the field.
    """
    if len(values) > limit:
        raise RequestError(
            f"{field} has {len(values)} entries; it takes at most {limit} {what}.", field=field
        )


def tuple_of(field: str, values: object, wanted: str) -> tuple[Any, ...]:
    """The values of a list, checked to be one: a single text or number is none.

    Raises:
        RequestError: Names the field.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise RequestError(
            f"{field}={values!r} is of type {type(values).__name__}; it takes a list of {wanted}.",
            field=field,
        )
    return tuple(values)


def bias_pairs(field: str, bias: object) -> tuple[tuple[int, float], ...]:
    """Token ids with what is added to their logits, ascending by id.

    Args:
        field: Named by the error.
        bias: A mapping, or the pairs themselves.

    Raises:
        RequestError: It is neither, an id is no integer or stands there twice, or a number is not
            finite.
    """
    entries = tuple_of(field, bias.items() if isinstance(bias, Mapping) else bias, "pairs")
    pairs = {}
    for entry in entries:
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            raise RequestError(
                f"{field} has {entry!r}; it takes pairs of a token id and a number.", field=field
            )
        token_id, number = entry
        check_is(field, token_id, int, "token ids that are integers")
        check_is(field, number, (int, float), "numbers")
        if not math.isfinite(number) or token_id in pairs:
            raise RequestError(
                f"{field} has {number} for token {token_id}; it takes one finite number for each "
                "token.",
                field=field,
            )
        pairs[token_id] = float(number)
    return tuple(sorted(pairs.items()))
