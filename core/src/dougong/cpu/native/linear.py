"""Linear layers in the packed layout, plain and gated."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dougong.contracts import UnsupportedError
from dougong.cpu.native import abi, calls
from dougong.cpu.native.library import NativeLibrary, advise_huge_pages, dtype_code
from dougong.cpu.native.pages import discard

_PANEL = 16
_PIECE_BYTES = 1 << 20  # packed at once before its source is given back
_ACTIVATIONS = {"silu": 1, "gelu_tanh": 2}


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A linear layer's weight in the layout of the kernels; owns its memory.

    ``data`` holds panels of 16 outputs: bfloat16 ``[panels, ceil(K / 2), 16, 2]``, float32
    ``[panels, K, 16]``, padded with zeros. Gate and up panels alternate in a gated pair. A weight
    that stays as its file stores it is uint8 ``[panels, K / 32, bytes of 16 blocks]``.
    """

    data: torch.Tensor
    num_outputs: int  # N; of a gated pair: of each half
    num_inputs: int  # K
    is_gated_pair: bool = False
    storage: str = ""  # of `blocks.FORMATS`; empty: a plain dtype
    unpacked_to: torch.dtype | None = None  # with ``storage``: what the kernels make of it

    @property
    def dtype(self) -> torch.dtype:
        """Of the inputs: float32 or bfloat16."""
        return self.unpacked_to or self.data.dtype


def pack_linear(
    library: NativeLibrary, weight: torch.Tensor, *, consume: bool = False
) -> PackedWeight:
    """Copy ``weight`` ``[N, K]``, float32 or bfloat16, into the packed layout.

    With ``consume`` the weight's memory is given back piece by piece as it is copied, so that both
    are never in memory together; its contents are lost.
    """
    return _pack(library, (weight,), consume)


def pack_gate_up(
    library: NativeLibrary, gate: torch.Tensor, up: torch.Tensor, *, consume: bool = False
) -> PackedWeight:
    """Copy two weights of one shape ``[N, K]`` into one packed gated pair; see `pack_linear`."""
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise UnsupportedError(
            f"a gated pair needs two weights alike; gate is {tuple(gate.shape)} {gate.dtype}, "
            f"up is {tuple(up.shape)} {up.dtype}"
        )
    return _pack(library, (gate, up), consume)


def _pack(library: NativeLibrary, weights: tuple[torch.Tensor, ...], consume: bool) -> PackedWeight:
    code = dtype_code(weights[0].dtype, "weight")
    n, k = weights[0].shape
    panels = -(-n // _PANEL) * len(weights)
    shape = (panels, -(-k // 2), _PANEL, 2) if code else (panels, k, _PANEL)
    data = torch.empty(shape, dtype=weights[0].dtype)
    advise_huge_pages(library, data)
    rows = [weight if weight.stride(1) == 1 else weight.contiguous() for weight in weights]
    step = max(1, _PIECE_BYTES // (k * data.element_size() * _PANEL)) * _PANEL if consume else n
    for start in range(0, n, step):
        pieces = [weight[start : start + step] for weight in rows]
        first, second = pieces[0], pieces[1] if len(pieces) > 1 else None
        library.c.dg_pack_linear(
            first.data_ptr(),
            first.stride(0),
            None if second is None else second.data_ptr(),
            0 if second is None else second.stride(0),
            first.shape[0],
            k,
            code,
            data[start // _PANEL * len(weights)].data_ptr(),
            library.num_threads,
        )
        if consume:
            for piece in pieces:
                if piece.is_contiguous():
                    discard(piece)
    return PackedWeight(data, n, k, len(weights) > 1)


def bind_linear(
    library: NativeLibrary,
    weight: PackedWeight,
    *,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> calls.LinearCall:
    """``out = x W^T + bias``: sums in float32 in the order of K, one rounding at the end.

    Args:
        library: The kernels.
        weight: From `pack_linear`; ``x`` has its dtype.
        bias: ``[N]``, any float dtype; copied.
        out_dtype: float32 or bfloat16; ``None``: that of the weight.
    """
    if weight.is_gated_pair:
        raise UnsupportedError("a gated pair is bound with bind_gate_up_act, not bind_linear")
    out = weight.dtype if out_dtype is None else out_dtype
    return _bind_linear(library, weight, _panel_bias(bias), out, activation=0)


def bind_gate_up_act(
    library: NativeLibrary,
    weight: PackedWeight,
    *,
    activation: str = "silu",
    gate_bias: torch.Tensor | None = None,
    up_bias: torch.Tensor | None = None,
) -> calls.LinearCall:
    """``out[num_tokens, N] = act(x gate^T + b) * (x up^T + b)``.

    Gate, up and ``act(gate)`` are each rounded to the weight's dtype, as the separate layers
    would do; the product once more.

    Args:
        library: The kernels.
        weight: From `pack_gate_up`.
        activation: ``"silu"`` or ``"gelu_tanh"``.
        gate_bias: ``[N]`` or ``None``; copied. Give both biases or neither.
        up_bias: Like ``gate_bias``.
    """
    code = _ACTIVATIONS.get(activation)
    if code is None or not weight.is_gated_pair or (gate_bias is None) != (up_bias is None):
        raise UnsupportedError(
            f"gate_up_act takes a packed gated pair, both biases or none, and an activation of "
            f"{sorted(_ACTIVATIONS)}; asked for {activation!r}"
        )
    bias = None
    if gate_bias is not None and up_bias is not None:
        halves = [_panel_bias(half) for half in (gate_bias, up_bias)]
        bias = torch.stack([h.view(-1, _PANEL) for h in halves if h is not None], 1).flatten()
    return _bind_linear(library, weight, bias, weight.dtype, activation=code)


def _bind_linear(
    library: NativeLibrary,
    weight: PackedWeight,
    bias: torch.Tensor | None,
    out_dtype: torch.dtype,
    *,
    activation: int,
) -> calls.LinearCall:
    descriptor = abi.LinearDesc(
        weight=weight.data.data_ptr(),
        bias=None if bias is None else bias.data_ptr(),
        n=weight.num_outputs,
        k=weight.num_inputs,
        dtype=dtype_code(weight.dtype, "weight"),
        out_dtype=dtype_code(out_dtype, "output"),
        activation=activation,
        num_threads=library.num_threads,
        storage=abi.STORAGE_CODES.get(weight.storage, 0),
    )
    return calls.LinearCall(library.c.dg_linear, descriptor, weight, bias)


def _panel_bias(bias: torch.Tensor | None) -> torch.Tensor | None:
    """A float32 copy, padded with zeros to whole panels."""
    if bias is None:
        return None
    padded = torch.zeros(-(-bias.shape[0] // _PANEL) * _PANEL)
    padded[: bias.shape[0]] = bias
    return padded
