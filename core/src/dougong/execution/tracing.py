"""A model's forward, run once without memory, and written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from dougong.attention import Attention
from dougong.errors import DougongError
from dougong.execution.executable import FlatLists
from dougong.execution.flat_model import (
    NUM_TOKENS,
    Argument,
    Dimension,
    FlatModel,
    Node,
    NodeKind,
    StepField,
    Value,
)
from dougong.ops import CustomOp
from dougong.ops.outline import named_ops

_COUNTS = (7, 11)  # tokens of two runs: sizes that differ between them are the step's
_CONSTANTS = (type(None), bool, int, float, str)


class NotFlatError(DougongError):
    """A model is no list of ops: it computes something outside them."""


def trace(make_model: Callable[[], nn.Module]) -> FlatLists:
    """Lists of a causal model: of its forward and of its logits.

    The forward runs twice on torch's ``meta`` device, with unlike numbers of tokens.

    Args:
        make_model: Builds it on that device, anew each time: a traced model is of no further use.

    Raises:
        NotFlatError: It calls torch itself, or what it calls depends on the number of tokens.
    """
    model = make_model()
    if not hasattr(model, "compute_logits"):
        raise NotFlatError("it predicts no token, and only models that do are lists so far")
    few, many = _Recording(model, _COUNTS[0]), _Recording(make_model(), _COUNTS[1])
    forward = _joined(few.forward(), many.forward())
    return FlatLists(forward, _joined(few.logits(), many.logits()))


def _joined(few: FlatModel, many: FlatModel) -> FlatModel:
    """One list of two runs; sizes that differ are the step's.

    Raises:
        NotFlatError: The runs are not alike.
    """
    other = {value.name: value for value in _all_values(many)}
    if [_shape_free(node) for node in few.nodes] != [_shape_free(node) for node in many.nodes]:
        raise NotFlatError("what the model calls depends on the number of tokens")

    def joined(value: Value) -> Value:
        pairs = zip(value.shape, other[value.name].shape, strict=True)
        shape = tuple(_dimension(one, two, value) for one, two in pairs)
        return Value(value.name, shape, value.dtype)

    known = {value.name: joined(value) for value in _all_values(few)}

    def known_input(one: Argument) -> Argument:
        return known[one.name] if isinstance(one, Value) else one

    nodes = tuple(
        replace(
            node,
            inputs=tuple(known_input(one) for one in node.inputs),
            outputs=tuple(known[one.name] for one in node.outputs),
        )
        for node in few.nodes
    )
    inputs = tuple(known[value.name] for value in few.inputs)
    return FlatModel(inputs, nodes, known[few.output.name], few.takes_step)


def _dimension(one: Dimension, two: Dimension, value: Value) -> Dimension:
    if one == two:
        return one
    if (one, two) != _COUNTS:
        raise NotFlatError(f"{value} has {one} or {two} elements for {_COUNTS} tokens")
    return NUM_TOKENS


def _shape_free(node: Node) -> tuple[object, ...]:
    inputs = tuple(one.name if isinstance(one, Value) else one for one in node.inputs)
    return node.kind, node.key, node.path, inputs, tuple(one.name for one in node.outputs)


def _all_values(flat: FlatModel) -> Iterable[Value]:
    yield from flat.inputs
    for node in flat.nodes:
        yield from node.outputs


def _looks(values: Iterable[Any]) -> Iterator[object]:
    """Of tensors only how they look: all that what is made of them can depend on here."""
    for value in values:
        yield (value.shape, value.dtype) if isinstance(value, torch.Tensor) else value


class _TracedStep:
    """Stands for the step: what is asked of it is written down by its name."""

    def __getattr__(self, name: str) -> StepField:
        if name.startswith("_"):
            raise AttributeError(name)
        return StepField(name)


class _Recording:
    """One model whose ops and layers write down how they are called."""

    def __init__(self, model: nn.Module, num_tokens: int) -> None:
        self._model = model
        self._num_tokens = num_tokens
        self._step = _TracedStep()
        self._nodes: list[Node] = []
        self._values: dict[int, Value] = {}
        self._held: list[torch.Tensor] = []  # an id is a tensor's name only while it lives
        self._results: dict[object, Any] = {}  # of ops alike: most layers are
        self._is_inside = False
        self._hidden: torch.Tensor | None = None
        for path, op in named_ops(model):
            op.bind("recorded", self._recorder(op, path, op.forward_native))
        for path, layer in model.named_modules():
            if isinstance(layer, Attention):
                self._record_layer(layer, path)

    def forward(self) -> FlatModel:
        """The list of the model's forward."""
        ids, positions = (
            torch.empty(self._num_tokens, dtype=torch.int64, device="meta") for _ in range(2)
        )
        inputs = (self._new_value(ids, "token_ids"), self._new_value(positions, "positions"))
        self._hidden = hidden = self._run(self._model.forward, ids, positions, self._step)
        return FlatModel(inputs, self._taken(), self._value_of(hidden, "the model's result"))

    def logits(self) -> FlatModel:
        """The list of its logits; after `forward`."""
        assert self._hidden is not None, "forward comes first"
        hidden = torch.empty_like(self._hidden)
        inputs = (self._new_value(hidden, "hidden"),)
        logits = self._run(self._model.compute_logits, hidden)
        output = self._value_of(logits, "the model's logits")
        return FlatModel(inputs, self._taken(), output, takes_step=False)

    @staticmethod
    def _run(function: Any, *args: Any) -> torch.Tensor:
        try:
            result: torch.Tensor = function(*args)
        except DougongError:
            raise
        except Exception as exc:
            raise NotFlatError(
                f"its code cannot run without memory: {type(exc).__name__}: {exc}"
            ) from exc
        return result

    def _taken(self) -> tuple[Node, ...]:
        nodes, self._nodes = tuple(self._nodes), []
        return nodes

    def _recorder(self, op: CustomOp, path: str, native: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if self._is_inside:  # a part of a slot that is native here; the slot is the node
                return native(*args)
            where = f"{op.key} at {path}"
            inputs = tuple(self._argument(arg, where) for arg in args)
            properties = op.properties()
            weights = _looks(op.state_dict().values())
            kind = (type(op), *properties.items(), *weights, *_looks(args))
            if kind not in self._results:
                self._is_inside = True
                try:
                    self._results[kind] = native(*args)
                finally:
                    self._is_inside = False
            node = Node(NodeKind.OP, op.key, path, inputs, (), properties=properties)
            return self._note(node, self._results[kind])

        return call

    def _record_layer(self, layer: Attention, path: str) -> None:
        def call(own: Attention, q: torch.Tensor, *args: Any) -> torch.Tensor:
            head_dim = own.head_dim_v or own.head_dim
            out = q.new_empty(q.shape[0], own.num_heads * head_dim)
            inputs = tuple(self._argument(one, f"attention at {path}") for one in (q, *args))
            noted = self._note(Node(NodeKind.ATTENTION, "attention", path, inputs, ()), out)
            assert isinstance(noted, torch.Tensor)
            return noted

        traced = type(f"Traced{type(layer).__name__}", (type(layer),), {"__call__": call})
        layer.__class__ = traced

    def _note(self, node: Node, result: Any) -> Any:
        """Write down a call; what the model gets as its result."""
        is_tuple = isinstance(result, tuple)
        # An op may give back what it was given, or what another one alike gave: from here on that
        # is another value.
        fresh = tuple(one.detach() for one in (result if is_tuple else (result,)))
        outputs = tuple(self._new_value(one) for one in fresh)
        self._nodes.append(replace(node, outputs=outputs, is_tuple=is_tuple))
        return fresh if is_tuple else fresh[0]

    def _argument(self, arg: Any, where: str) -> Argument:
        if isinstance(arg, torch.Tensor):
            return self._value_of(arg, f"an argument of {where}")
        if arg is self._step:
            return StepField()
        if isinstance(arg, (StepField, *_CONSTANTS)):
            return arg
        raise NotFlatError(f"an argument of {where} is a {type(arg).__name__}")

    def _value_of(self, tensor: torch.Tensor, what: str) -> Value:
        value = self._values.get(id(tensor))
        if value is None:
            raise NotFlatError(
                f"{what} comes from no op: the model calls torch itself. Make an op of it"
            )
        return value

    def _new_value(self, tensor: torch.Tensor, name: str | None = None) -> Value:
        dtype = str(tensor.dtype).removeprefix("torch.")
        value = Value(name or f"v{len(self._held)}", tuple(tensor.shape), dtype)
        self._values[id(tensor)] = value
        self._held.append(tensor)
        return value
