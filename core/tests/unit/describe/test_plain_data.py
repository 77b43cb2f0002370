from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from dougong.describe.plain_data import from_plain, to_plain


@dataclass(frozen=True, slots=True)
class Part:
    size: int
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Whole:
    part: Part
    maybe: Part | None = None
    several: tuple[Part, ...] = ()
    by_name: Mapping[str, Part] = field(default_factory=dict)
    rate: float = 0.5


WHOLE = Whole(Part(1, frozenset({"b", "a"})), Part(2), (Part(3), Part(4)), {"z": Part(5)}, 2.0)


def test_values_come_back_as_they_went() -> None:
    plain = to_plain(WHOLE)
    assert plain["part"] == {"size": 1, "names": ["a", "b"]}
    assert from_plain(Whole, plain) == WHOLE


def test_what_is_not_stated_keeps_its_default() -> None:
    assert from_plain(Whole, {"part": {"size": 1}}) == Whole(Part(1))


@pytest.mark.parametrize(
    ("plain", "told"),
    [
        ({"part": {"siz": 1}}, r"^part\.siz is unknown: did you mean 'size'\?$"),
        ({"part": {"size": 1, "zzz": 1}}, r"^part\.zzz is unknown; known: size, names$"),
        ({"maybe": {"nam": 1}}, r"^maybe\.nam is unknown"),
        ({"several": [{}, {"siz": 1}]}, r"^several\[1\]\.siz is unknown"),
        ({"by_name": {"x": {"siz": 1}}}, r"^by_name\.x\.siz is unknown"),
        ({"a": 1, "b": 2}, r"^a is unknown.*; b is unknown"),
        ({"part": {"size": "1"}}, r"^part\.size: Expected `int`, got `str`$"),
        ({"part": {"size": True}}, r"^part\.size: Expected `int`, got `bool`$"),
        ({"part": 3}, r"^part: Expected `object`, got `int`$"),
        ({}, r"^Object missing required field `part`$"),
        ([], r"^Expected `object`, got `array`$"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(plain: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        from_plain(Whole, plain)
