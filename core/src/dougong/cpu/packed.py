"""Ops on weights in the native kernels' own layout.

Each class is made once per op after its weights are loaded. A packed weight replaces the op's own
where nothing else reads that, so that a model is in memory once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from dougong.cpu import native
from dougong.cpu.native_kernel import (
    NATIVE_DTYPES,
    WEIGHT_FORMATS,
    WEIGHTED_KERNEL,
    loaded_library,
    refuse,
)
from dougong.cpu.platform import NATIVE_LIBRARY
from dougong.ops import (
    Embedding,
    GateUpAct,
    Linear,
    LMHead,
    Needs,
    OneOf,
    register_kernel,
)

_LINEAR = "cpu/packed_linear"
_GATE_UP_ACT = "cpu/packed_gate_up_act"
_LM_HEAD = "cpu/packed_lm_head"
_EMBEDDING = "cpu/embedding"
ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
"""Name in a checkpoint → name in the native library."""


def release(weight: torch.Tensor) -> None:
    """Give a weight's memory back; nothing reads it any more."""
    weight.data = weight.new_empty(0)


class Product:
    """A call into the native library that makes rows of another width."""

    _num_outputs: int
    _dtype: torch.dtype
    _call: Callable[[torch.Tensor, torch.Tensor], None]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """As the op is called."""
        if x.dtype is not self._dtype:
            refuse(self._dtype, x)
        out = x.new_empty((x.shape[0], self._num_outputs))
        self._call(x, out)
        return out


class HeadProduct:
    """A call into the native library that makes logits, of a weight that others may read too."""

    packed: native.PackedWeight
    _num_outputs: int
    _dtype: torch.dtype
    _call: Callable[[torch.Tensor, torch.Tensor], None]

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """See `LMHead`."""
        if hidden.dtype is not self._dtype:
            refuse(self._dtype, hidden)
        out = hidden.new_empty((hidden.shape[0], self._num_outputs), dtype=torch.float32)
        self._call(hidden, out)
        return out


@register_kernel("linear", name=_LINEAR, when=WEIGHTED_KERNEL)
class PackedLinear(Product):
    """``linear`` on a packed weight; a row's bits do not depend on the batch."""

    def __init__(self, op: Linear) -> None:
        self._num_outputs = op.out_features
        self._dtype = op.weight.dtype
        library, is_alone = loaded_library(), op.is_alone(_LINEAR)
        packed = native.pack_linear(library, op.weight, consume=is_alone)
        self._call = native.bind_linear(library, packed, bias=op.bias)
        if is_alone:
            release(op.weight)


@register_kernel(
    "gate_up_act",
    name=_GATE_UP_ACT,
    when=Needs(
        dtype=NATIVE_DTYPES,
        library=NATIVE_LIBRARY,
        weight_format=WEIGHT_FORMATS,
        activation=OneOf(*ACTIVATIONS),
    ),
)
class PackedGateUpAct(Product):
    """``gate_up_act`` with the activation at the end of the product."""

    def __init__(self, op: GateUpAct) -> None:
        self._dtype = op.weight.dtype
        library, is_alone = loaded_library(), op.is_alone(_GATE_UP_ACT)
        gate, up = op.weight.chunk(2)
        gate_bias, up_bias = (None, None) if op.bias is None else op.bias.chunk(2)
        packed = native.pack_gate_up(library, gate, up, consume=is_alone)
        self._num_outputs = op.intermediate_size
        self._call = native.bind_gate_up_act(
            library,
            packed,
            activation=ACTIVATIONS[op.activation],
            gate_bias=gate_bias,
            up_bias=up_bias,
        )
        if is_alone:
            release(op.weight)


@register_kernel("lm_head", name=_LM_HEAD, when=WEIGHTED_KERNEL)
class PackedLMHead(HeadProduct):
    """``lm_head`` on a packed weight, which a tied embedding may read its rows from."""

    def __init__(self, op: LMHead) -> None:
        self._num_outputs = op.vocab_size
        self._dtype = op.weight.dtype
        library = loaded_library()
        if op.embedding is None:
            is_alone = op.is_alone(_LM_HEAD)
            self.packed = native.pack_linear(library, op.weight, consume=is_alone)
            if is_alone:
                release(op.weight)
        else:
            self.packed = _packed_table(op.embedding, op)
        self._call = native.bind_linear(library, self.packed, out_dtype=torch.float32)


@register_kernel("embedding", name=_EMBEDDING, when=WEIGHTED_KERNEL)
class PackedEmbedding:
    """``embedding`` from the packed weight of a tied head: one copy serves both.

    Where it has no head, or something else computes that, the table stays as it is and rows are
    read from there.
    """

    def __init__(self, op: Embedding) -> None:
        self._library = loaded_library()
        self._hidden_size = op.hidden_size
        is_shared = op.head is not None and _LM_HEAD in op.head.assigned
        self.packed = _packed_table(op, op.head) if op.head and is_shared else None
        self._table = op.weight if self.packed is None else self.packed
        self._dtype = self._table.dtype

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor:
        """See `Embedding`."""
        out = torch.empty((token_ids.shape[0], self._hidden_size), dtype=self._dtype)
        native.embedding(self._library, self._table, token_ids, out)
        return out


def _packed_table(embedding: Embedding, head: LMHead) -> native.PackedWeight:
    def pack(consume: bool) -> native.PackedWeight:
        return native.pack_linear(loaded_library(), embedding.weight, consume=consume)

    return shared_table(embedding, head, (_EMBEDDING, _LM_HEAD), pack)


def shared_table(
    embedding: Embedding,
    head: LMHead,
    names: tuple[str, str],
    pack: Callable[[bool], native.PackedWeight],
) -> native.PackedWeight:
    """The packed weight of a tied pair: made by the one that is bound first, found by the other.

    Args:
        embedding: Of the pair.
        head: Of the pair.
        names: Of the two kernels; what is bound under them has ``packed``.
        pack: Makes it; told whether nobody else will ever read the weight.
    """
    for op in (embedding, head):
        for piece in op.pieces:
            if piece.implementation in names:
                found = getattr(getattr(piece.call, "__self__", None), "packed", None)
                if isinstance(found, native.PackedWeight):
                    return found
    is_alone = (embedding.assigned, head.assigned) == ((names[0],), (names[1],)) and {
        *embedding.sharers,
        *head.sharers,
    } == {embedding, head}
    packed = pack(is_alone)
    if is_alone:
        release(embedding.weight)
    return packed
