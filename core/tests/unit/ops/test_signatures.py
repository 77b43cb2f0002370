"""How a function is held against the way it will be called."""

from __future__ import annotations

import math
from typing import Any

from dougong.ops.signatures import call_problems, construction_problems, has_own_call


class Base:
    def __init__(self, size: int, scale: float = 1.0) -> None: ...


def test_what_cannot_be_inspected_is_believed() -> None:
    assert list(call_problems(print, ("x",))) == []
    assert list(call_problems(math.hypot, ("x", "weight"))) == []


def test_defaults_and_collectors_take_what_is_passed() -> None:
    def collects(x: Any, *rest: Any) -> None: ...
    def defaults(x: Any, weight: Any, block: int = 8) -> None: ...
    def options(x: Any, weight: Any, **rest: Any) -> None: ...

    for function in (collects, defaults, options):
        assert list(call_problems(function, ("x", "weight"))) == []


def test_a_name_in_another_place_is_found_behind_any_other() -> None:
    def kernel(a: Any, eps: Any, weight: Any) -> None: ...

    (problem,) = call_problems(kernel, ("x", "weight", "eps"))
    assert problem == (
        "it takes (a, eps, weight) and is called with (x, weight, eps): "
        "eps stands where weight is passed"
    )


def test_a_constructor_takes_all_arguments_by_position_by_name_and_only_the_required() -> None:
    class Same(Base): ...

    class Collects(Base):
        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    class More(Base):
        def __init__(self, size: int, scale: float = 1.0, block: int = 8) -> None: ...

    class Required(Base):
        def __init__(self, size: int, scale: float) -> None: ...

    class Renamed(Base):
        def __init__(self, width: int, scale: float = 1.0) -> None: ...

    assert [list(construction_problems(cls, Base)) for cls in (Same, Collects, More)] == [[]] * 3
    for cls in (Required, Renamed):
        (problem,) = construction_problems(cls, Base)
        assert "it is made with those of" in problem


def test_an_object_can_be_called_only_if_its_class_says_so() -> None:
    class Calls:
        def __call__(self) -> None: ...

    class Heir(Calls): ...

    assert [has_own_call(cls) for cls in (Calls, Heir, Base)] == [True, True, False]
