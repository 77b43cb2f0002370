"""Weights of eight bits, multiplied as they are stored, on families with AITER's kernels.

``claims.toml`` states the format, so that a plan can speak of it: the core of contract 1.0 hands
kernels plain weights alone and calls no `LinearMethod`.
"""

from __future__ import annotations

from typing import Final

import torch
from dougong.contracts import LinearMethod, UnsupportedError
from torch import nn

INT8_KERNEL: Final = "rocm/aiter_w8a8"
_ALIGNED = 16  # elements of a row: its products are taken in pieces of so many bytes


class AiterInt8Linear(LinearMethod):
    """``x`` in eight bits per token, times a weight in eight bits per output channel.

    Parameters on the layer: ``weight`` int8 ``[out_features, in_features]`` and ``weight_scale``
    float32 ``[out_features, 1]``, as compressed tensors name them.
    """

    def create_weights(
        self, layer: nn.Module, in_features: int, out_features: int, dtype: torch.dtype
    ) -> None:
        """Register both.

        Raises:
            UnsupportedError: The dtype or the size is none that AITER multiplies.
        """
        if dtype not in (torch.bfloat16, torch.float16):
            raise UnsupportedError(
                f"{INT8_KERNEL} gives bfloat16 or float16, not {dtype}; start with --dtype bfloat16"
            )
        if in_features % _ALIGNED:
            raise UnsupportedError(
                f"{INT8_KERNEL} takes rows of a multiple of {_ALIGNED} elements, not {in_features}"
            )
        weight = torch.empty(out_features, in_features, dtype=torch.int8)
        layer.weight = nn.Parameter(weight, requires_grad=False)
        scale = torch.empty(out_features, 1, dtype=torch.float32)
        layer.weight_scale = nn.Parameter(scale, requires_grad=False)

    def post_load(self, layer: nn.Module) -> None:
        """Scales lie along the output of the product."""
        layer.output_scale = layer.get_parameter("weight_scale").detach().view(1, -1).contiguous()

    def apply(self, layer: nn.Module, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Two calls; no value goes to the host."""
        x = x.contiguous()
        stored = torch.empty_like(x, dtype=torch.int8)
        scales = x.new_empty((x.shape[0], 1), dtype=torch.float32)
        torch.ops.aiter.dynamic_per_token_scaled_quant(stored, x, scales)
        product: torch.Tensor = torch.ops.aiter.gemm_a8w8(
            stored,
            layer.get_parameter("weight"),
            scales,
            layer.output_scale,
            bias=bias,
            dtype=x.dtype,
        )
        return product
