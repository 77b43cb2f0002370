from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from dougong.describe.plain_data import UnusableData, read_plain, to_plain, unknown_keys


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


def from_plain(kind: type[Whole], plain: Any) -> Whole:
    value, problems = read_plain(kind, plain)
    if value is None or problems:
        raise UnusableData(problems)
    return value


def test_values_come_back_as_they_went() -> None:
    plain = to_plain(WHOLE)
    assert plain["part"] == {"size": 1, "names": ["a", "b"]}
    assert from_plain(Whole, plain) == WHOLE


def test_what_is_not_stated_keeps_its_default() -> None:
    assert from_plain(Whole, {"part": {"size": 1}}) == Whole(Part(1))


def test_all_that_does_not_fit_is_told_together() -> None:
    plain = {"part": {"size": "1", "nam": 1}, "several": [{}, 3], "by_name": {"x": {"size": 2.5}}}
    with pytest.raises(UnusableData) as caught:
        from_plain(Whole, plain)
    assert [one.split(" ")[0] for one in caught.value.problems] == [
        "part.size:",
        "part.nam",
        "several[0]:",
        "several[1]:",
        "by_name.x.size:",
    ]


def test_unknown_keys_alone_are_found_with_what_they_are_in() -> None:
    plain = {"part": {"siz": "1"}, "rate": "fast"}
    assert list(unknown_keys(Whole, plain, "$")) == ["$.part.siz is unknown: did you mean 'size'?"]


def test_a_value_with_unknown_keys_is_read_without_them() -> None:
    value, problems = read_plain(Whole, {"part": {"size": 1, "x": 2}})
    assert value == Whole(Part(1))
    assert len(problems) == 1
    assert read_plain(Whole, {"part": 3})[0] is None


@pytest.mark.parametrize(
    ("plain", "told"),
    [
        ({"part": {"siz": 1}}, r"^part\.siz is unknown: did you mean 'size'\?; part: Object miss"),
        ({"part": {"size": 1, "zzz": 1}}, r"^part\.zzz is unknown; known: size, names$"),
        ({"maybe": {"nam": 1}}, r"^maybe\.nam is unknown"),
        ({"several": [{"size": 1}, {"siz": 1}]}, r"^several\[1\]\.siz is unknown"),
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
