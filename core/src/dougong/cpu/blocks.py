"""Ops on weights that stay in the blocks of their file: 4 or 8 bits, a scale for 32 of them.

Each class is made once per op after its weights are loaded, and takes their place as those in
`dougong.cpu.packed` do.
"""

from __future__ import annotations

import torch

from dougong.cpu import native
from dougong.cpu.native_kernel import NATIVE_DTYPES, loaded_library
from dougong.cpu.packed import ACTIVATIONS, HeadProduct, Product, release, shared_table
from dougong.cpu.platform import NATIVE_LIBRARY
from dougong.ops import Embedding, GateUpAct, Linear, LMHead, Needs, OneOf, register_kernel

_LINEAR = "cpu/block_linear"
_GATE_UP_ACT = "cpu/block_gate_up_act"
_LM_HEAD = "cpu/block_lm_head"
_EMBEDDING = "cpu/block_embedding"
_FORMATS = OneOf(*native.BLOCK_FORMATS)
_BLOCKS = Needs(dtype=NATIVE_DTYPES, library=NATIVE_LIBRARY, weight_format=_FORMATS)


@register_kernel("linear", name=_LINEAR, when=_BLOCKS)
class BlockLinear(Product):
    """``linear`` on a weight in blocks; a row's bits do not depend on the batch."""

    def __init__(self, op: Linear) -> None:
        self._num_outputs, self._dtype = op.out_features, op.dtype
        library, is_alone = loaded_library(), op.is_alone(_LINEAR)
        packed = native.pack_blocks(
            library, op.weight, op.weight_format, op.dtype, consume=is_alone
        )
        self._call = native.bind_linear(library, packed, bias=op.bias)
        if is_alone:
            release(op.weight)


@register_kernel(
    "gate_up_act",
    name=_GATE_UP_ACT,
    when=Needs(
        dtype=NATIVE_DTYPES,
        library=NATIVE_LIBRARY,
        weight_format=_FORMATS,
        activation=OneOf(*ACTIVATIONS),
    ),
)
class BlockGateUpAct(Product):
    """``gate_up_act`` on a weight in blocks."""

    def __init__(self, op: GateUpAct) -> None:
        self._num_outputs, self._dtype = op.intermediate_size, op.dtype
        library, is_alone = loaded_library(), op.is_alone(_GATE_UP_ACT)
        gate, up = op.weight.chunk(2)
        gate_bias, up_bias = (None, None) if op.bias is None else op.bias.chunk(2)
        packed = native.pack_gate_up_blocks(
            library, gate, up, op.weight_format, op.dtype, consume=is_alone
        )
        self._call = native.bind_gate_up_act(
            library,
            packed,
            activation=ACTIVATIONS[op.activation],
            gate_bias=gate_bias,
            up_bias=up_bias,
        )
        if is_alone:
            release(op.weight)


@register_kernel("lm_head", name=_LM_HEAD, when=_BLOCKS)
class BlockLMHead(HeadProduct):
    """``lm_head`` on a weight in blocks, which a tied embedding may read its rows from."""

    def __init__(self, op: LMHead) -> None:
        self._num_outputs, self._dtype = op.vocab_size, op.dtype
        library = loaded_library()
        if op.embedding is None:
            is_alone = op.is_alone(_LM_HEAD)
            self.packed = native.pack_blocks(
                library, op.weight, op.weight_format, op.dtype, consume=is_alone
            )
            if is_alone:
                release(op.weight)
        else:
            self.packed = _packed_table(op.embedding, op)
        self._call = native.bind_linear(library, self.packed, out_dtype=torch.float32)


@register_kernel("embedding", name=_EMBEDDING, when=_BLOCKS)
class BlockEmbedding:
    """``embedding`` from a table in blocks, or from that of a tied head: one copy serves both."""

    def __init__(self, op: Embedding) -> None:
        self._library, self._dtype, self._columns = loaded_library(), op.dtype, op.hidden_size
        is_shared = op.head is not None and _LM_HEAD in op.head.assigned
        if op.head is not None and is_shared:
            self.packed = _packed_table(op, op.head)
        else:
            is_alone = op.is_alone(_EMBEDDING)
            self.packed = native.pack_blocks(
                self._library, op.weight, op.weight_format, op.dtype, consume=is_alone
            )
            if is_alone:
                release(op.weight)

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor:
        """See `Embedding`."""
        out = torch.empty((token_ids.shape[0], self._columns), dtype=self._dtype)
        native.embedding_from_blocks(self._library, self.packed, token_ids, out)
        return out


def _packed_table(embedding: Embedding, head: LMHead) -> native.PackedWeight:
    def pack(consume: bool) -> native.PackedWeight:
        weight, name = embedding.weight, embedding.weight_format
        return native.pack_blocks(loaded_library(), weight, name, embedding.dtype, consume=consume)

    return shared_table(embedding, head, (_EMBEDDING, _LM_HEAD), pack)
