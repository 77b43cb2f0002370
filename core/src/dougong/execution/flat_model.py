"""A model as a flat list: which op, of which layer, reads what and makes what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dougong.contracts import Property

NUM_TOKENS = "num_tokens"
"""Stands in shapes for what a step decides."""

Dimension = int | str
Constant = None | bool | int | float | str


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that flows between nodes.

    Attributes:
        name: Unique in its list; a Python name.
        shape: Sizes; `NUM_TOKENS` where it is the step's.
        dtype: torch's name, as in ``"bfloat16"``.
    """

    name: str
    shape: tuple[Dimension, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class StepField:
    """What a node reads of the step beside tensors that flow.

    Attributes:
        name: Attribute of `AttentionStep`; empty: the step itself.
    """

    name: str = ""


Argument = Value | StepField | Constant


class NodeKind(StrEnum):
    """What a node calls."""

    OP = "op"
    ATTENTION = "attention"  # a layer over the paged cache, of whatever backend is bound to it


@dataclass(frozen=True, slots=True)
class Node:
    """One call.

    Attributes:
        kind: Of what is called.
        key: Of the op; ``"attention"`` for a layer.
        path: Of what is called, in the model; calls of one op in two places share it.
        inputs: In the order of the call.
        outputs: Where ``is_tuple``, in the order of the result; else one.
        is_tuple: Whether the call returns a tuple.
        properties: What the op says of itself.
    """

    kind: NodeKind
    key: str
    path: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Value, ...]
    is_tuple: bool = False
    properties: Mapping[str, Property] = field(default_factory=dict)

    def values(self) -> Iterator[Value]:
        """Tensors that flow in."""
        return (one for one in self.inputs if isinstance(one, Value))


@dataclass(frozen=True, slots=True)
class FlatModel:
    """Nodes in the order in which they run.

    Attributes:
        inputs: Of the whole list, in the order of the call.
        nodes: Each reads inputs and what nodes before it made.
        output: What the list is for.
        takes_step: Whether the call has the step as its last argument.
    """

    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    output: Value
    takes_step: bool = True

    def lines(self, implementation: Callable[[Node], str] = lambda node: "") -> Iterator[str]:
        """The list as people read it: inputs and output, then a line for each node with its place,
        what it makes, its call, its path and who computes it.

        Args:
            implementation: What runs for a node; empty: it is left out.
        """
        inputs = ", ".join(_typed(value) for value in self.inputs)
        yield f"({inputs}{', step' if self.takes_step else ''}) -> {_typed(self.output)}"
        width = len(str(len(self.nodes)))
        for index, node in enumerate(self.nodes):
            results = ", ".join(_typed(value) for value in node.outputs)
            call = f"{node.key}({', '.join(_shown(one) for one in node.inputs)})"
            runs = implementation(node)
            tail = f"  # {node.path}" + (f": {runs}" if runs else "")
            yield f"{index:>{width}}  {results} = {call}{tail}"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def readers(self) -> dict[str, list[int]]:
        """Value → places of the nodes that read it, in order; the output is read by nobody."""
        found: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for value in node.values():
                found.setdefault(value.name, []).append(index)
        return found


def _typed(value: Value) -> str:
    sizes = ", ".join("n" if size == NUM_TOKENS else str(size) for size in value.shape)
    return f"{value.name}: {value.dtype}[{sizes}]"


def _shown(one: Argument) -> str:
    if isinstance(one, Value):
        return one.name
    if isinstance(one, StepField):
        return f"step.{one.name}" if one.name else "step"
    return repr(one)
