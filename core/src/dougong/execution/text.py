"""A flat list as people read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dougong.execution.flat_model import NUM_TOKENS, Argument, FlatModel, Node, StepField, Value


def lines_of(
    flat: FlatModel, implementation: Callable[[Node], str] = lambda node: ""
) -> Iterator[str]:
    """One line for each node: place, result, call, shapes, path and who computes it.

    Args:
        flat: The list.
        implementation: What runs for a node; empty: it is left out.
    """
    inputs = ", ".join(_typed(value) for value in flat.inputs)
    yield f"({inputs}{', step' if flat.takes_step else ''}) -> {_typed(flat.output)}"
    width = len(str(len(flat.nodes)))
    for index, node in enumerate(flat.nodes):
        results = ", ".join(_typed(value) for value in node.outputs)
        call = f"{node.key}({', '.join(_shown(one) for one in node.inputs)})"
        runs = implementation(node)
        tail = f"  # {node.path}" + (f": {runs}" if runs else "")
        yield f"{index:>{width}}  {results} = {call}{tail}"


def _typed(value: Value) -> str:
    sizes = ", ".join("n" if size == NUM_TOKENS else str(size) for size in value.shape)
    return f"{value.name}: {value.dtype}[{sizes}]"


def _shown(one: Argument) -> str:
    if isinstance(one, Value):
        return one.name
    if isinstance(one, StepField):
        return f"step.{one.name}" if one.name else "step"
    return repr(one)
