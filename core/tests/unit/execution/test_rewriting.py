"""Rewrites of a list: one node for several, and what is refused as it would mean another thing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dougong.execution import FlatModel, Node, NodeKind, Value
from dougong.execution.rewriting import NewNode, Pattern, RewriteError, Step, find, fuse, group


def value(name: str) -> Value:
    return Value(name, ("num_tokens", 8), "float32")


X, R = value("x"), value("r")
TOTAL, NORMED, UP, DOWN, LATE = (value(name) for name in ("total", "normed", "up", "down", "late"))


def node(key: str, path: str, inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> Node:
    return Node(NodeKind.OP, key, path, inputs, outputs, len(outputs) > 1)


FLAT = FlatModel(
    inputs=(X, R),
    nodes=(
        node("add", "layers.0.add", (X, R), (TOTAL,)),
        node("rms_norm", "layers.0.norm", (TOTAL,), (NORMED,)),
        node("linear", "layers.0.mlp.up", (NORMED,), (UP,)),
        node("linear", "layers.0.mlp.down", (UP,), (DOWN,)),
        node("add", "layers.1.add", (DOWN, TOTAL), (LATE,)),
    ),
    output=LATE,
    takes_step=False,
)
ADD_NORM = Pattern(
    steps=(
        Step("add", ("x", "residual"), ("total",)),
        Step("rms_norm", ("total",), ("normed",)),
    ),
    key="fused_add_rms_norm",
    inputs=("x", "residual"),
    outputs=("normed", "total"),
    overwrites=("x", "residual"),
)
FUSED = NewNode(
    key="fused_add_rms_norm",
    path="layers.0.norm+add",
    inputs=(X, R),
    outputs=(NORMED, TOTAL),
    is_tuple=True,
    overwrites=(X, R),
)


def test_a_pattern_is_found_where_values_flow_as_it_says() -> None:
    (match,) = find(FLAT, ADD_NORM)
    assert match.places == (0, 1)
    assert match.bound == {"x": X, "residual": R, "total": TOTAL, "normed": NORMED}


def test_nodes_that_are_not_tied_by_a_value_are_no_match() -> None:
    nodes = list(FLAT.nodes)
    nodes[1] = replace(nodes[1], inputs=(X,))
    assert not list(find(replace(FLAT, nodes=tuple(nodes)), ADD_NORM))


def test_matches_share_no_node() -> None:
    twice = Pattern(
        (Step("linear", ("a",), ("b",)), Step("linear", ("b",), ("c",))), "two", ("a",), ("c",)
    )
    chain = [value(f"c{index}") for index in range(6)]
    nodes = tuple(
        node("linear", f"l{index}", (chain[index],), (chain[index + 1],)) for index in range(5)
    )
    flat = FlatModel((chain[0],), nodes, chain[-1], takes_step=False)
    assert [match.places for match in find(flat, twice)] == [(0, 1), (2, 3)]


def test_one_node_takes_the_place_of_two() -> None:
    flat = fuse(FLAT, (0, 1), FUSED)
    assert [one.path for one in flat.nodes] == [
        "layers.0.norm+add",
        "layers.0.mlp.up",
        "layers.0.mlp.down",
        "layers.1.add",
    ]
    assert flat.nodes[0].outputs == (NORMED, TOTAL)
    assert len(FLAT.nodes) == 5, "the list it was made of is as it was"


def test_a_value_that_others_read_must_still_be_made() -> None:
    lossy = replace(FUSED, outputs=(NORMED,), is_tuple=False)
    with pytest.raises(RewriteError, match=r"makes total\[.*\] no more for others"):
        fuse(FLAT, (0, 1), lossy)


def test_the_result_of_the_list_must_still_be_made() -> None:
    with pytest.raises(RewriteError, match="no more"):
        fuse(FLAT, (4,), NewNode(key="k", path="p", inputs=(DOWN,), outputs=()))


def test_a_value_must_not_come_too_late() -> None:
    with pytest.raises(RewriteError, match="too late"):
        fuse(FLAT, (0, 3), NewNode(key="k", path="p", inputs=(UP,), outputs=(TOTAL, DOWN)))


def test_what_nobody_makes_before_cannot_be_read() -> None:
    with pytest.raises(RewriteError, match=r"reads late\[.*\], which nobody makes before it"):
        fuse(FLAT, (0, 1), replace(FUSED, inputs=(X, LATE)))


def test_another_value_of_the_same_name_is_refused() -> None:
    other = Value("normed", ("num_tokens", 9), "float32")
    with pytest.raises(RewriteError, match="it was normed"):
        fuse(FLAT, (0, 1), replace(FUSED, outputs=(other, TOTAL)))


def test_memory_that_others_read_later_is_not_overwritten() -> None:
    nodes = (*FLAT.nodes, node("add", "more", (LATE, R), (value("end"),)))
    flat = replace(FLAT, nodes=nodes, output=value("end"))
    with pytest.raises(RewriteError, match=r"may overwrite r\[.*\], which add at more reads after"):
        fuse(flat, (0, 1), FUSED)
    assert fuse(flat, (0, 1), replace(FUSED, overwrites=(X,)))


def test_one_layers_part_becomes_one_node() -> None:
    flat = group(FLAT, "layers.0.mlp", key="acme/mlp")
    (mlp,) = (one for one in flat.nodes if one.key == "acme/mlp")
    assert (mlp.path, mlp.inputs, mlp.outputs) == ("layers.0.mlp", (NORMED,), (DOWN,))
    assert len(flat.nodes) == 4


def test_a_part_that_is_not_there_is_refused_with_what_is() -> None:
    with pytest.raises(RewriteError, match=r"no node lies at 'layers\.0\.mp'.*the list has layers"):
        group(FLAT, "layers.0.mp", key="acme/mlp")
