"""Sizes of graphs: within every limit, close enough to each other, fewer where fewer may exist."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dougong.contracts import GraphLevel
from dougong.planner.graph_sizes import LARGEST, GraphLimits, asked_sizes, choose_sizes

PIECEWISE, DECODE, FULL = GraphLevel.PIECEWISE, GraphLevel.DECODE, GraphLevel.FULL
SOME_SIZES = st.sets(st.integers(1, 700), max_size=12).map(lambda sizes: tuple(sorted(sizes)))
MOST = st.one_of(st.none(), st.integers(0, 300))


def limits(**changes: Any) -> GraphLimits:
    values: dict[str, Any] = {"max_num_seqs": 48, "max_num_tokens": 2048, "num_pieces": 31}
    return GraphLimits(**(values | changes))


@st.composite
def any_limits(draw: st.DrawFn) -> GraphLimits:
    max_num_seqs = draw(st.integers(1, 600))
    return GraphLimits(
        max_num_seqs=max_num_seqs,
        max_num_tokens=draw(st.integers(max_num_seqs, 4000)),
        num_pieces=draw(st.integers(1, 40)),
        max_graphs=draw(MOST),
        max_whole_graphs=draw(MOST),
        sizes=draw(SOME_SIZES),
        whole_sizes=draw(st.one_of(st.none(), SOME_SIZES)),
    )


def test_each_size_is_twice_the_one_before_and_the_largest_step_is_one() -> None:
    made = choose_sizes(DECODE, limits())
    assert made.decode == (1, 2, 4, 8, 16, 32, 48)
    assert made.piecewise == (8, 16, 32, 64, 128, 256, 512)
    assert made.full == ()
    alone = choose_sizes(PIECEWISE, limits(max_num_tokens=100))
    assert (alone.decode, alone.piecewise) == ((), (1, 2, 4, 8, 16, 32, 64, 100))
    full = choose_sizes(FULL, limits(max_num_tokens=100))
    assert (full.decode, full.piecewise, full.full) == (made.decode, (), (8, 16, 32, 64, 100))


@given(given_limits=any_limits(), level=st.sampled_from([PIECEWISE, DECODE, FULL]))
def test_sizes_stay_within_every_limit(given_limits: GraphLimits, level: GraphLevel) -> None:
    made = choose_sizes(level, given_limits)
    whole = (*made.decode, *made.full)
    assert all(size <= min(given_limits.max_num_seqs, LARGEST) for size in made.decode)
    most = min(given_limits.max_num_tokens, LARGEST)
    assert all(size <= most for size in (*made.piecewise, *made.full))
    for sizes in (made.decode, made.piecewise, made.full):
        assert sizes == tuple(sorted(set(sizes)))
    if given_limits.whole_sizes is not None:
        assert set(whole) <= set(given_limits.whole_sizes)
    if given_limits.sizes:
        assert set(made.piecewise) <= set(given_limits.sizes)
    if given_limits.max_whole_graphs is not None:
        assert len(whole) <= given_limits.max_whole_graphs
    if given_limits.max_graphs is not None:
        num_graphs = len(whole) + len(made.piecewise) * given_limits.num_pieces
        assert num_graphs <= given_limits.max_graphs
    assert made.may_drop
    assert not (made.full and made.piecewise)
    assert level is not PIECEWISE or not whole


@given(max_num_seqs=st.integers(1, 700), num_tokens=st.integers(1, 512))
def test_padding_is_less_than_the_step_itself_where_nothing_limits_the_sizes(
    max_num_seqs: int, num_tokens: int
) -> None:
    sizes = choose_sizes(PIECEWISE, limits(max_num_seqs=max_num_seqs)).piecewise
    assert min(size for size in sizes if size >= num_tokens) < 2 * num_tokens


def test_of_sizes_that_a_device_states_the_next_larger_ones_are_taken() -> None:
    stated = tuple(range(8, 1000, 8))
    made = choose_sizes(DECODE, limits(sizes=stated, whole_sizes=stated))
    assert made.decode == (8, 16, 32, 48)
    assert made.piecewise == (8, 16, 32, 64, 128, 256, 512)
    odd = choose_sizes(DECODE, limits(max_num_seqs=50, whole_sizes=(3, 5, 40, 60)))
    assert odd.decode == (3, 5, 40)


@pytest.mark.parametrize(
    ("max_graphs", "decode", "piecewise"),
    [
        (7 + 7 * 31, (1, 2, 4, 8, 16, 32, 48), (8, 16, 32, 64, 128, 256, 512)),
        (7 + 3 * 31, (1, 2, 4, 8, 16, 32, 48), (8, 64, 512)),
        (7 + 31, (1, 2, 4, 8, 16, 32, 48), (512,)),
        (30, (1, 2, 4, 8, 16, 32, 48), ()),
        (3, (1, 8, 48), ()),
        (1, (48,), ()),
        (0, (), ()),
    ],
)
def test_fewer_graphs_are_spread_from_the_smallest_to_the_largest(
    max_graphs: int, decode: tuple[int, ...], piecewise: tuple[int, ...]
) -> None:
    made = choose_sizes(DECODE, limits(max_graphs=max_graphs))
    assert (made.decode, made.piecewise) == (decode, piecewise)


def test_sizes_that_were_asked_for_are_taken_as_they_are() -> None:
    made, problems = asked_sizes(DECODE, (3, 40, 100), limits())
    assert (made.decode, made.piecewise) == ((3, 40), (3, 40, 100))
    assert (made.may_drop, problems) == (False, ())
    full, problems = asked_sizes(FULL, (3, 100), limits())
    assert (full.decode, full.full, full.piecewise, problems) == ((3,), (3, 100), (), ())


@pytest.mark.parametrize(
    ("level", "changes", "told"),
    [
        (DECODE, {"max_num_seqs": 2}, "none is a decode step.*max_num_seqs=2"),
        (PIECEWISE, {"sizes": (4, 8)}, "the device captures 4, 8, and not 100"),
        (DECODE, {"whole_sizes": (8,)}, "device and attention capture 8, and not 4"),
        (PIECEWISE, {"max_graphs": 61}, "makes 62 graphs, and 61 may exist"),
        (FULL, {"max_whole_graphs": 2}, "makes 3 graphs with attention, and 2 may exist"),
    ],
)
def test_sizes_that_were_asked_for_and_cannot_be_are_a_problem(
    level: GraphLevel, changes: dict[str, Any], told: str
) -> None:
    _, problems = asked_sizes(level, (4, 100), limits(**changes))
    (problem,) = problems
    assert re.search(told, problem)
