"""The CPU platform's ops: native kernels, marked for the loader and bound where their library was
built.

Each class is made once per op after its weights are loaded. A packed weight replaces the op's own,
so
that a model is in memory once.
"""

from __future__ import annotations

import torch

from dougong.contracts import UnsupportedError
from dougong.cpu import native
from dougong.cpu.native.calls import RopeCall
from dougong.cpu.native_library import get_library
from dougong.cpu.platform import NATIVE_LIBRARY
from dougong.ops import (
    Embedding,
    FusedAddRMSNorm,
    GateUpAct,
    GreedySample,
    Linear,
    LMHead,
    Needs,
    RMSNorm,
    RotaryEmbedding,
    register_kernel,
)

_NATIVE = Needs(dtype=frozenset({"float32", "bfloat16"}), library=NATIVE_LIBRARY)
_ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


def _library() -> native.NativeLibrary:
    library = get_library()
    assert not isinstance(library, native.NotBuilt), "the condition asked for the library"
    return library


def _release(weight: torch.Tensor) -> None:
    weight.data = weight.new_empty(0)


@register_kernel("linear", name="cpu/packed_linear", when=_NATIVE)
class PackedLinear:
    """``linear`` on a packed weight; a row's bits do not depend on the batch."""

    def __init__(self, op: Linear) -> None:
        self._num_outputs = op.weight.shape[0]
        library = _library()
        packed = native.pack_linear(library, op.weight, consume=True)
        self._call = native.bind_linear(library, packed, bias=op.bias)
        _release(op.weight)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See `Linear`."""
        out = x.new_empty((x.shape[0], self._num_outputs))
        self._call(x, out)
        return out


@register_kernel("gate_up_act", name="cpu/packed_gate_up_act", when=_NATIVE)
class PackedGateUpAct:
    """``gate_up_act`` with the activation at the end of the product."""

    def __init__(self, op: GateUpAct) -> None:
        if op.activation not in _ACTIVATIONS:
            raise UnsupportedError(
                f"activation {op.activation}; takes {', '.join(sorted(_ACTIVATIONS))}"
            )
        library = _library()
        gate, up = op.weight.chunk(2)
        gate_bias, up_bias = (None, None) if op.bias is None else op.bias.chunk(2)
        packed = native.pack_gate_up(library, gate, up, consume=True)
        self._num_outputs = gate.shape[0]
        self._call = native.bind_gate_up_act(
            library,
            packed,
            activation=_ACTIVATIONS[op.activation],
            gate_bias=gate_bias,
            up_bias=up_bias,
        )
        _release(op.weight)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See `GateUpAct`."""
        out = x.new_empty((x.shape[0], self._num_outputs))
        self._call(x, out)
        return out


@register_kernel("lm_head", name="cpu/packed_lm_head", when=_NATIVE)
class PackedLMHead:
    """``lm_head`` on a packed weight; a tied embedding then reads its rows from there."""

    def __init__(self, op: LMHead) -> None:
        self._num_outputs = op.weight.shape[0]
        library = _library()
        packed = native.pack_linear(library, op.weight, consume=True)
        self._call = native.bind_linear(library, packed, out_dtype=torch.float32)
        if op.embedding is not None:
            op.embedding.bind("cpu/packed_embedding", PackedEmbedding(op.embedding, packed))
        _release(op.weight)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """See `LMHead`."""
        out = hidden.new_empty((hidden.shape[0], self._num_outputs), dtype=torch.float32)
        self._call(hidden, out)
        return out


class PackedEmbedding:
    """``embedding`` from the packed weight of a tied head: one copy serves both."""

    def __init__(self, op: Embedding, packed: native.PackedWeight) -> None:
        self._library = _library()
        self._packed = packed
        self._hidden_size = op.weight.shape[1]

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor:
        """See `Embedding`."""
        out = torch.empty((token_ids.shape[0], self._hidden_size), dtype=self._packed.dtype)
        native.embedding(self._library, self._packed, token_ids, out)
        return out


@register_kernel("rms_norm", name="cpu/rms_norm", when=_NATIVE)
class NativeRMSNorm:
    """``rms_norm`` in one pass over each row."""

    def __init__(self, op: RMSNorm) -> None:
        self._hidden_size = op.weight.shape[0]
        self._call = native.bind_rms_norm(
            _library(),
            op.weight,
            hidden_size=self._hidden_size,
            dtype=op.weight.dtype,
            eps=op.eps,
        )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See `RMSNorm`."""
        rows = x.reshape(-1, self._hidden_size)
        out = torch.empty_like(rows)
        self._call(rows, out)
        return out.view(x.shape)


@register_kernel("fused_add_rms_norm", name="cpu/fused_add_rms_norm", when=_NATIVE)
class NativeAddRMSNorm:
    """``fused_add_rms_norm`` in one pass; the sum goes into the residual's memory."""

    def __init__(self, op: FusedAddRMSNorm) -> None:
        library, weight = _library(), op.weight
        hidden_size, dtype = weight.shape[0], weight.dtype
        self._norm = native.bind_rms_norm(
            library, weight, hidden_size=hidden_size, dtype=dtype, eps=op.eps
        )
        self._add_norm = native.bind_add_rms_norm(
            library, weight, hidden_size=hidden_size, dtype=dtype, eps=op.eps
        )

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `FusedAddRMSNorm`."""
        if residual is None:
            out = torch.empty_like(x)
            self._norm(x, out)
            return out, x
        self._add_norm(x, residual, x)
        return x, residual


@register_kernel("rotary_embedding", name="cpu/rotary_embedding", when=_NATIVE)
class NativeRotaryEmbedding:
    """``rotary_embedding`` in place."""

    def __init__(self, op: RotaryEmbedding) -> None:
        self._op = op
        self._calls: dict[tuple[int, int, torch.dtype], RopeCall] = {}

    def __call__(
        self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `RotaryEmbedding`. Head counts are the model's, so the first step binds them all."""
        key = (q.shape[1], k.shape[1], q.dtype)
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = self._bind(*key)
        call(q, k, positions)
        return q, k

    def _bind(self, num_heads: int, num_kv_heads: int, dtype: torch.dtype) -> RopeCall:
        return native.bind_rope(
            _library(),
            self._op.cos_sin_cache,
            head_dim=self._op.head_dim,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            dtype=dtype,
            interleaved=not self._op.is_neox,
        )


@register_kernel("greedy_sample", name="cpu/greedy_sample", when=Needs(library=NATIVE_LIBRARY))
class NativeGreedySample:
    """``greedy_sample`` over float32 rows."""

    def __init__(self, op: GreedySample) -> None:
        self._library = _library()

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """See `GreedySample`."""
        out = torch.empty(logits.shape[0], dtype=torch.int64)
        native.argmax_rows(self._library, logits, out)
        return out
