"""Python without a loop or a branch, made of a flat list: what a rank runs in every step."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dougong.execution.flat_model import Argument, FlatModel, StepField, Value

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class StraightLine:
    """A list that can be called.

    Attributes:
        call: Takes the list's inputs, and the step where the list takes it.
        source: Its code, as tracebacks show it.
        counts: Calls of each node so far; empty: they are not counted.
    """

    call: Callable[..., Any]
    source: str
    counts: list[int]


def make_straight_line(
    flat: FlatModel, called: Mapping[str, Callable[..., Any]], *, is_counted: bool = False
) -> StraightLine:
    """Code of ``flat`` over what its nodes call.

    Each node is one line, and a tensor is let go after the last line that reads it.

    Args:
        flat: The list.
        called: By path: ops and attention layers of the loaded model. What is bound to an op later
            is what runs.
        is_counted: Count the calls of each node.
    """
    counts = [0] * len(flat.nodes) if is_counted else []
    names: dict[str, Any] = {"counts": counts}
    numbers: dict[str, str] = {}
    for node in flat.nodes:
        if node.path not in numbers:
            numbers[node.path] = f"f{len(numbers)}"
            names[numbers[node.path]] = called[node.path]
    lines = [f"def forward({', '.join(_parameters(flat))}):"]
    lines += (f"    {line}" for line in _body(flat, numbers, is_counted))
    source = "\n".join(lines) + "\n"
    filename = f"<flat model {next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), names)
    return StraightLine(names["forward"], source, counts)


def _parameters(flat: FlatModel) -> Iterator[str]:
    yield from (value.name for value in flat.inputs)
    if flat.takes_step:
        yield "step"


def _body(flat: FlatModel, numbers: Mapping[str, str], is_counted: bool) -> Iterator[str]:
    ends = _last_reads(flat)
    for index, node in enumerate(flat.nodes):
        result = ", ".join(value.name for value in node.outputs)
        if node.is_tuple and len(node.outputs) == 1:
            result += ","
        arguments = ", ".join(_argument(one) for one in node.inputs)
        yield f"{result} = {numbers[node.path]}({arguments})  # {node.path}"
        if is_counted:
            yield f"counts[{index}] += 1"
        if dead := ends.get(index):
            yield f"del {', '.join(dead)}"
    yield f"return {flat.output.name}"


def _last_reads(flat: FlatModel) -> dict[int, list[str]]:
    """Place of a node → values that nobody reads after it."""
    last: dict[str, int] = {}
    for index, node in enumerate(flat.nodes):
        last.update((value.name, index) for value in (*node.outputs, *node.values()))
    ends: dict[int, list[str]] = {}
    for name, index in last.items():
        if name != flat.output.name:
            ends.setdefault(index, []).append(name)
    return ends


def _argument(one: Argument) -> str:
    if isinstance(one, Value):
        return one.name
    if isinstance(one, StepField):
        return f"step.{one.name}" if one.name else "step"
    return repr(one)
