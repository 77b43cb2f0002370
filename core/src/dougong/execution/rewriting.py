"""Changes of a flat list: one node for several, everywhere or in one layer. No model file changes.

A rewrite never changes what a list means, as far as a list can tell: it is refused where a value
inside would be lost to somebody else, or memory overwritten that somebody else reads later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dougong.contracts import Property
from dougong.errors import DougongError
from dougong.execution.flat_model import Argument, FlatModel, Node, NodeKind, Value


class RewriteError(DougongError):
    """A rewrite would change what a list means, or does not fit it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNode:
    """What takes the place of some nodes.

    Attributes:
        key: Of the op.
        path: A name of its own, unless it calls what a node it replaces called.
        inputs: In the order of the call.
        outputs: In the order of the result.
        is_tuple: Whether the call returns a tuple.
        overwrites: Inputs whose memory it may overwrite.
        properties: What the op says of itself.
    """

    key: str
    path: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Value, ...]
    is_tuple: bool = False
    overwrites: tuple[Value, ...] = ()
    properties: Mapping[str, Property] = field(default_factory=dict)


def fuse(flat: FlatModel, places: Sequence[int], new: NewNode) -> FlatModel:
    """One node in the place of several, or of one.

    Args:
        flat: The list.
        places: Of the nodes that go; ascending.
        new: What comes, where the last of them was.

    Raises:
        RewriteError: It reads what is not there, or makes less than others read, or overwrites what
            others read later.
    """
    gone, last = frozenset(places), places[-1]
    _check_inputs(flat, gone, last, new)
    _check_outputs(flat, gone, last, new)
    readers = flat.readers()
    for value in new.overwrites:
        late = [place for place in readers.get(value.name, ()) if place > last]
        if late or value.name == flat.output.name:
            raise RewriteError(
                f"{new.key} at {new.path} may overwrite {value}, which "
                f"{_at(flat, late[0]) if late else 'the list gives back'} reads after it"
            )
    node = Node(
        NodeKind.OP, new.key, new.path, new.inputs, new.outputs, new.is_tuple, new.properties
    )
    nodes = [
        node if place == last else one
        for place, one in enumerate(flat.nodes)
        if place == last or place not in gone
    ]
    return replace(flat, nodes=tuple(nodes))


def group(flat: FlatModel, prefix: str, *, key: str) -> FlatModel:
    """One node in the place of all below a path, such as one layer's MLP; it reads what they read
    of others and makes what others read of them.

    Args:
        flat: The list.
        prefix: A path, as in ``"layers.3.mlp"``; it becomes the node's.
        key: Of the op that comes.

    Raises:
        RewriteError: There is no such node, or others stand between that need a part of them.
    """
    places = [
        place
        for place, node in enumerate(flat.nodes)
        if node.path == prefix or node.path.startswith(f"{prefix}.")
    ]
    if not places:
        known = ", ".join(dict.fromkeys(node.path.split(".")[0] for node in flat.nodes))
        raise RewriteError(f"no node lies at {prefix!r} or below it; the list has {known}")
    made = {one.name: one for place in places for one in flat.nodes[place].outputs}
    inputs: dict[object, Argument] = {}
    for place in places:
        for one in flat.nodes[place].inputs:
            if not (isinstance(one, Value) and one.name in made) and one is not None:
                inputs.setdefault(one, one)
    outputs = tuple(made[name] for name in made if name in _read_outside(flat, frozenset(places)))
    new = NewNode(
        key=key,
        path=prefix,
        inputs=tuple(inputs.values()),
        outputs=outputs,
        is_tuple=len(outputs) > 1,
    )
    return fuse(flat, places, new)


def _check_inputs(flat: FlatModel, gone: frozenset[int], last: int, new: NewNode) -> None:
    known = {value.name for value in flat.inputs}
    for place, node in enumerate(flat.nodes[:last]):
        if place not in gone:
            known |= {value.name for value in node.outputs}
    for one in new.inputs:
        if isinstance(one, Value) and one.name not in known:
            raise RewriteError(f"{new.key} at {new.path} reads {one}, which nobody makes before it")


def _check_outputs(flat: FlatModel, gone: frozenset[int], last: int, new: NewNode) -> None:
    made = {value.name: value for value in new.outputs}
    old = {value.name: value for place in gone for value in flat.nodes[place].outputs}
    for name, value in made.items():
        if old.get(name) != value:
            raise RewriteError(f"{new.key} at {new.path} makes {value}; it was {old.get(name)}")
    for name in _read_outside(flat, gone):
        early = [place for place in flat.readers().get(name, ()) if place < last]
        if name not in made or any(place not in gone for place in early):
            where = "too late" if name in made else "no more"
            raise RewriteError(f"{new.key} at {new.path} makes {old[name]} {where} for others")


def _read_outside(flat: FlatModel, gone: frozenset[int]) -> frozenset[str]:
    """What nodes make that others read, or that the list gives back."""
    made = {value.name for place in gone for value in flat.nodes[place].outputs}
    read = {
        value.name
        for place, node in enumerate(flat.nodes)
        if place not in gone
        for value in node.values()
    }
    return frozenset(made & (read | {flat.output.name}))


def _at(flat: FlatModel, place: int) -> str:
    node = flat.nodes[place]
    return f"{node.key} at {node.path}"


@dataclass(frozen=True, slots=True)
class Step:
    """One node of a pattern.

    Attributes:
        key: Of its op.
        inputs: Names of what it reads; those of outputs of earlier steps tie them together.
        outputs: Names of what it makes.
    """

    key: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Nodes that one op computes at once.

    Attributes:
        steps: In an order in which each but the first reads something of an earlier one.
        key: Of the op that computes all.
        inputs: Names of what it is called with, in order.
        outputs: Names of what it returns, in order.
        overwrites: Names of inputs that it may overwrite.
    """

    steps: tuple[Step, ...]
    key: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    overwrites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """Where a pattern stands.

    Attributes:
        places: Of its nodes, as in the pattern's order.
        bound: Name in the pattern → argument.
    """

    places: tuple[int, ...]
    bound: Mapping[str, Argument]


def find(flat: FlatModel, pattern: Pattern) -> Iterator[Match]:
    """Where a pattern stands; matches share no node."""
    taken: set[int] = set()
    for place in range(len(flat.nodes)):
        match = _matched(flat, pattern, place, taken)
        if match is not None:
            taken.update(match.places)
            yield match


def _matched(flat: FlatModel, pattern: Pattern, place: int, taken: set[int]) -> Match | None:
    bound: dict[str, Argument] = {}
    places: list[int] = []
    readers = flat.readers()
    for step in pattern.steps:
        candidates: Sequence[int] = [place]
        if places:
            names = [bound[name] for name in step.inputs if name in bound]
            candidates = [
                one
                for value in names
                if isinstance(value, Value)
                for one in readers.get(value.name, ())
            ]
        found = next(
            (
                one
                for one in candidates
                if one not in taken and one not in places and _unify(flat, one, step, bound)
            ),
            None,
        )
        if found is None:
            return None
        places.append(found)
    return Match(tuple(places), bound)


def _unify(flat: FlatModel, place: int, step: Step, bound: dict[str, Argument]) -> bool:
    """Whether a node is the step; the names it binds are added where it is."""
    node = flat.nodes[place]
    if node.key != step.key or len(node.inputs) != len(step.inputs):
        return False
    if len(node.outputs) != len(step.outputs):
        return False
    names = (*step.inputs, *step.outputs)
    given: tuple[Argument, ...] = (*node.inputs, *node.outputs)
    if any(name in bound and bound[name] != one for name, one in zip(names, given, strict=True)):
        return False
    bound.update(zip(names, given, strict=True))
    return True
