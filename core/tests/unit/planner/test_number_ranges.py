from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dougong.planner.number_ranges import number_ranges


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [([], ""), ([7], "7"), ([3, 0, 1, 2], "0-3"), ([0, 1, 2, 5, 8, 9], "0-2,5,8-9")],
)
def test_numbers_that_follow_one_another_are_a_range(numbers: list[int], shown: str) -> None:
    assert number_ranges(numbers) == shown


@given(st.sets(st.integers(0, 60)))
def test_a_range_says_exactly_its_numbers(numbers: set[int]) -> None:
    said: set[int] = set()
    for part in filter(None, number_ranges(numbers).split(",")):
        first, _, last = part.partition("-")
        said |= set(range(int(first), int(last or first) + 1))
    assert said == numbers
