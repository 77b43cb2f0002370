"""Graphs that fit a budget: measured at both ends, between them on a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dougong.contracts import GraphAssignment
from dougong.worker.graph_budget import estimate_bytes, fitting_graphs, measured_graphs
from dougong.worker.graph_dispatch import StepGraph, graphs_of

SIZES = st.sets(st.integers(1, 600), max_size=8).map(lambda sizes: tuple(sorted(sizes)))


def graphs(decode: tuple[int, ...], piecewise: tuple[int, ...] = ()) -> tuple[StepGraph, ...]:
    return graphs_of(GraphAssignment(decode=decode, piecewise=piecewise), max_num_seqs=600)


def test_the_ends_of_each_kind_are_measured_the_largest_first() -> None:
    measured = measured_graphs(graphs((1, 2, 4), (8,)))
    assert list(map(str, measured)) == ["decode 4", "decode 1", "piecewise 8"]


@given(decode=SIZES, piecewise=SIZES, base=st.integers(0, 10**6), rise=st.integers(0, 10**4))
def test_bytes_that_grow_with_the_size_are_estimated_exactly(
    decode: tuple[int, ...], piecewise: tuple[int, ...], base: int, rise: int
) -> None:
    some = graphs(decode, piecewise)
    true = {one: base + rise * one.num_tokens for one in some}
    measured = {one: true[one] for one in measured_graphs(some)}
    assert estimate_bytes(some, measured) == true


def test_memory_that_the_largest_left_for_the_smallest_is_never_counted_below_it() -> None:
    some = graphs((1, 2, 4))
    measured = {some[2]: 100, some[0]: 300}
    assert estimate_bytes(some, measured) == {some[0]: 300, some[1]: 300, some[2]: 100}


@given(
    decode=SIZES,
    piecewise=SIZES,
    max_bytes=st.integers(0, 3000),
    each=st.lists(st.integers(0, 900), min_size=16, max_size=16),
)
def test_what_fits_is_within_the_budget_and_whatever_is_left_out_would_not_have_fitted(
    decode: tuple[int, ...], piecewise: tuple[int, ...], max_bytes: int, each: list[int]
) -> None:
    some = graphs(decode, piecewise)
    num_bytes = dict(zip(some, each, strict=False))
    kept = fitting_graphs(some, num_bytes, max_bytes)
    assert sum(num_bytes[one] for one in kept) <= max_bytes
    for one in set(some) - set(kept):
        before = [other for other in kept if some.index(other) < some.index(one)]
        assert sum(num_bytes[other] for other in before) + num_bytes[one] > max_bytes


@pytest.mark.parametrize(
    ("max_bytes", "kept"),
    [
        (70, ["decode 1", "decode 2", "decode 4", "piecewise 8", "piecewise 16"]),
        (69, ["decode 1", "decode 2", "decode 4", "piecewise 8"]),
        (27, ["decode 1", "decode 2", "decode 4"]),
        (6, ["decode 1", "decode 2"]),
        (0, []),
    ],
)
def test_the_largest_pieces_are_dropped_first(max_bytes: int, kept: list[str]) -> None:
    some = graphs((1, 2, 4), (8, 16))
    num_bytes = dict(zip(some, (1, 3, 6, 20, 40), strict=True))
    assert list(map(str, fitting_graphs(some, num_bytes, max_bytes))) == kept
