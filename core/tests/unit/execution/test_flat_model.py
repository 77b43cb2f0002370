"""A list: who reads what, and how it looks."""

from __future__ import annotations

from dougong.execution import FlatModel, Node, NodeKind, StepField, Value

X = Value("x", ("num_tokens", 8), "float32")
Y, Z = (Value(name, ("num_tokens", 16), "bfloat16") for name in "yz")
FLAT = FlatModel(
    inputs=(X,),
    nodes=(
        Node(NodeKind.OP, "linear", "layers.0.up", (X,), (Y,)),
        Node(NodeKind.OP, "add_norm", "layers.0.norm", (Y, None), (Z, Y), is_tuple=True),
        Node(NodeKind.ATTENTION, "attention", "layers.0.attention", (Z, Z, StepField()), (X,)),
        Node(NodeKind.OP, "cut", "cut", (X, StepField("longest"), 3), (Z,)),
    ),
    output=Z,
)


def test_readers_of_a_value_are_its_nodes_in_order() -> None:
    assert FLAT.readers() == {"x": [0, 3], "y": [1], "z": [2, 2]}
    assert list(FLAT.nodes[2].values()) == [Z, Z]


def test_a_list_is_printed_with_places_shapes_and_who_computes() -> None:
    lines = list(FLAT.lines(lambda node: "acme/fast" if node.key == "linear" else ""))
    assert lines == [
        "(x: float32[n, 8], step) -> z: bfloat16[n, 16]",
        "0  y: bfloat16[n, 16] = linear(x)  # layers.0.up: acme/fast",
        "1  z: bfloat16[n, 16], y: bfloat16[n, 16] = add_norm(y, None)  # layers.0.norm",
        "2  x: float32[n, 8] = attention(z, z, step)  # layers.0.attention",
        "3  z: bfloat16[n, 16] = cut(x, step.longest, 3)  # cut",
    ]
    assert str(FLAT).splitlines()[2:] == lines[2:]
