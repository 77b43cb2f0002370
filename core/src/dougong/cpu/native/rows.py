"""Row-wise kernels: norms, row gathers, argmax."""

from __future__ import annotations

import torch

from dougong.contracts import UnsupportedError
from dougong.cpu.native import abi, calls
from dougong.cpu.native.library import NativeLibrary, dtype_code
from dougong.cpu.native.linear import PackedWeight


def _norm(
    library: NativeLibrary,
    weight: torch.Tensor | None,
    hidden_size: int,
    dtype: torch.dtype,
    eps: float,
    weight_offset: bool,
    round_before_weight: bool | None,
) -> abi.NormDesc:
    if weight is not None and (
        weight.dtype != dtype or weight.shape != (hidden_size,) or weight.stride(0) != 1
    ):
        raise UnsupportedError(
            f"the norm's weight must be a contiguous [{hidden_size}] of {dtype}; "
            f"it is {tuple(weight.shape)} of {weight.dtype}"
        )
    early = not weight_offset if round_before_weight is None else round_before_weight
    return abi.NormDesc(
        weight=None if weight is None else weight.data_ptr(),
        hidden=hidden_size,
        eps=eps,
        dtype=dtype_code(dtype, "activation"),
        weight_offset=weight_offset,
        round_before_weight=early,
        num_threads=library.num_threads,
    )


def bind_rms_norm(
    library: NativeLibrary,
    weight: torch.Tensor | None,
    *,
    hidden_size: int,
    dtype: torch.dtype,
    eps: float,
    weight_offset: bool = False,
    round_before_weight: bool | None = None,
) -> calls.RMSNormCall:
    """``x / sqrt(mean(x^2) + eps) * weight`` in float32.

    Args:
        library: The kernels.
        weight: ``[hidden_size]`` of ``dtype``, or ``None``.
        hidden_size: Length of a row.
        dtype: Of ``x`` and ``out``: float32 or bfloat16.
        eps: Added to the mean square.
        weight_offset: Multiply with ``1 + weight`` (the Gemma family).
        round_before_weight: Round the normed row to ``dtype`` before the weight, as the Llama
            family was trained. ``None``: yes without ``weight_offset``, no with it.
    """
    descriptor = _norm(library, weight, hidden_size, dtype, eps, weight_offset, round_before_weight)
    return calls.RMSNormCall(library.c.dg_rms_norm, descriptor, weight)


def bind_add_rms_norm(
    library: NativeLibrary,
    weight: torch.Tensor | None,
    *,
    hidden_size: int,
    dtype: torch.dtype,
    eps: float,
    weight_offset: bool = False,
    round_before_weight: bool | None = None,
) -> calls.AddRMSNormCall:
    """`bind_rms_norm` of ``residual + x``, where the rounded sum becomes the residual."""
    descriptor = _norm(library, weight, hidden_size, dtype, eps, weight_offset, round_before_weight)
    return calls.AddRMSNormCall(library.c.dg_rms_norm, descriptor, weight)


def embedding(
    library: NativeLibrary, table: torch.Tensor | PackedWeight, ids: torch.Tensor, out: torch.Tensor
) -> None:
    """``out[i] = table[ids[i]]``; ``table`` ``[V, K]`` or packed, ``ids`` int64, all in range."""
    packed = isinstance(table, PackedWeight)
    data = table.data if isinstance(table, PackedWeight) else table
    library.c.dg_embedding(
        data.data_ptr(),
        0 if packed else data.stride(0),
        out.shape[1],
        abi.DTYPE_CODES[data.dtype],
        packed,
        ids.data_ptr(),
        ids.shape[0],
        out.data_ptr(),
        out.stride(0),
    )


def argmax_rows(library: NativeLibrary, logits: torch.Tensor, out: torch.Tensor) -> None:
    """Index of the largest of each float32 row ``[M, V]`` into int64 ``out`` ``[M]``.

    The lowest index on ties. A row with NaN gives the index of its first NaN, as
    ``torch.argmax`` does; a row of ``-inf`` gives 0.
    """
    library.c.dg_argmax_rows(
        logits.data_ptr(),
        logits.stride(0),
        logits.shape[0],
        logits.shape[1],
        out.data_ptr(),
        library.num_threads,
    )


def exp(library: NativeLibrary, x: torch.Tensor, out: torch.Tensor) -> None:
    """The exponential the kernels use, on contiguous float32 tensors of one size."""
    library.c.dg_exp(x.data_ptr(), out.data_ptr(), x.numel())
