from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache, wraps
from typing import Any

import pytest

from dougong.platforms.signatures import member_problems, shown


class Given:
    def run(self, a: int, b: int = 2, *, c: int = 3) -> int:
        return a + b + c

    @classmethod
    def on_class(cls, a: int) -> int:
        return a

    @property
    def size(self) -> int:
        return 1


def _problems(written: object, given: str = "run") -> str:
    return "; ".join(member_problems("Written.run", written, vars(Given)[given]))


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


GOOD: list[Any] = [
    lambda self, a, b=2, *, c=3: 0,
    lambda self, a, b=2, c=3: 0,
    lambda self, a, b=2, *rest, c=3, d=4, **more: 0,
    lambda self, *args, **kwargs: 0,
    _wrapped(lambda self, a, b=2, *, c=3: 0),
    lru_cache(lambda self, a, b=2, *, c=3: 0),
    staticmethod(lambda a, b=2, *, c=3: 0),
    classmethod(lambda cls, a, b=2, *, c=3: 0),
]

BAD: list[tuple[Any, str]] = [
    (lambda self, a, *, c=3: 0, "'b' is missing"),
    (lambda self, x, b=2, *, c=3: 0, "'a' is missing"),
    (lambda self, b=2, a=0, *, c=3: 0, "'a' must stand at position 1"),
    (lambda self, a, b, *, c=3: 0, "'b' must have the default 2"),
    (lambda self, a, b=5, *, c=3: 0, "the default 2, not 5"),
    (lambda self, a, /, b=2, *, c=3: 0, "'a' must be allowed by name"),
    (lambda self, a, *, b=2, c=3: 0, "'b' must be allowed by position"),
    (lambda self, a, b=2, *, c=3, d: 0, "'d' is not in the contract and has no default"),
    (lambda self, *args: 0, "'c' is missing"),
    (property(lambda self: 0), "is a property; the contract has a method"),
    (3, "is a plain attribute; the contract has a method"),
]


async def _coroutine(self: object, a: int, b: int = 2, *, c: int = 3) -> int:
    return 0


@pytest.mark.parametrize("written", GOOD)
def test_what_every_caller_can_call_has_no_problem(written: object) -> None:
    assert _problems(written) == ""


@pytest.mark.parametrize(("written", "told"), BAD)
def test_what_some_caller_cannot_call_is_named(written: object, told: str) -> None:
    assert told in _problems(written)


def test_an_async_method_in_place_of_a_plain_one_is_named() -> None:
    assert "must not be async" in _problems(_coroutine)


def test_a_method_of_the_class_must_stay_one() -> None:
    assert "needs an instance" in _problems(lambda self, a: 0, "on_class")
    assert _problems(staticmethod(lambda a: 0), "on_class") == ""


def test_a_property_may_become_a_value_and_not_a_method() -> None:
    assert _problems(3, "size") == ""
    assert _problems(cached_property(lambda self: 3), "size") == ""
    assert "is a method; the contract has a property" in _problems(lambda self: 3, "size")


def test_a_sentence_shows_both_signatures() -> None:
    text = _problems(lambda self, a: 0)
    assert text.startswith("Written.run(a) must take (a, b=2, *, c=3): ")


def test_a_member_is_shown_as_its_caller_sees_it() -> None:
    assert shown("run", vars(Given)["run"]).startswith("method run(a: ")
    assert shown("size", vars(Given)["size"]) == "property size"
