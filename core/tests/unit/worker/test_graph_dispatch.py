"""The smallest graph that holds a step, from three numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dougong.contracts import GraphAssignment, GraphLevel
from dougong.worker.graph_dispatch import GraphDispatch, StepGraph, graphs_of

DECODE, PIECEWISE, FULL = GraphLevel.DECODE, GraphLevel.PIECEWISE, GraphLevel.FULL
SIZES = st.sets(st.integers(1, 40), max_size=5).map(lambda sizes: tuple(sorted(sizes)))


@st.composite
def steps(draw: st.DrawFn) -> tuple[int, int, int]:
    """Sequences, tokens, most tokens of one sequence."""
    lengths = draw(st.lists(st.integers(1, 20), min_size=1, max_size=12))
    return len(lengths), sum(lengths), max(lengths)


@given(decode=SIZES, other=SIZES, is_full=st.booleans(), step=steps())
def test_a_step_takes_the_smallest_graph_that_holds_it_and_else_none(
    decode: tuple[int, ...], other: tuple[int, ...], is_full: bool, step: tuple[int, int, int]
) -> None:
    full, piecewise = (other, ()) if is_full else ((), other)
    assignment = GraphAssignment(decode=decode, full=full, piecewise=piecewise)
    graphs = graphs_of(assignment, max_num_seqs=12)
    dispatch = GraphDispatch(graphs)
    num_seqs, num_tokens, longest = step
    chosen = dispatch.choose(*step)
    fitting_decodes = [size for size in decode if size >= num_seqs] if longest == 1 else []
    fitting_others = [size for size in other if size >= num_tokens]
    if fitting_decodes:
        assert chosen == StepGraph(DECODE, min(fitting_decodes), min(min(fitting_decodes), 12))
    elif fitting_others:
        size = min(fitting_others)
        assert chosen == (
            StepGraph(FULL, size, min(size, 12)) if is_full else StepGraph(PIECEWISE, size, 0)
        )
    else:
        assert chosen is None
    counters = dispatch.counters
    assert sum(counters.hits.values()) + counters.num_eager_steps == 1
    padding = 0 if chosen is None else chosen.num_tokens - num_tokens
    assert counters.num_padding_tokens == padding >= 0


def test_whole_decode_steps_come_first_and_of_each_kind_the_smallest() -> None:
    assignment = GraphAssignment(decode=(1, 8), piecewise=(8, 64))
    assert list(map(str, graphs_of(assignment, max_num_seqs=4))) == [
        "decode 1",
        "decode 8",
        "piecewise 8",
        "piecewise 64",
    ]
    assert [graph.num_seqs for graph in graphs_of(assignment, max_num_seqs=4)] == [1, 4, 0, 0]


def test_counters_are_plain_data_and_begin_anew() -> None:
    dispatch = GraphDispatch(graphs_of(GraphAssignment(piecewise=(4,)), max_num_seqs=4))
    for step in ((1, 3, 3), (2, 4, 3), (2, 9, 8)):
        dispatch.choose(*step)
    assert dispatch.counters.as_dict() == {
        "hits": {"piecewise 4": 2},
        "num_padding_tokens": 1,
        "num_eager_steps": 1,
    }
    dispatch.reset_counters()
    assert dispatch.counters.as_dict() == {
        "hits": {"piecewise 4": 0},
        "num_padding_tokens": 0,
        "num_eager_steps": 0,
    }
