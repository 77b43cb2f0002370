"""Linear layers computed from weights of 8 bits, as they are stored.

The core of contract 1.0 hands every weight over as plain numbers and calls no `LinearMethod`; this
one is held against its meaning in the tests, and is used once the core does.
"""

from __future__ import annotations

import torch
from dougong.contracts import LinearMethod
from torch import nn


class Fp8Linear(LinearMethod):
    """``float8_e4m3fn`` weights with float32 scales, activations in half precision.

    A checkpoint's ``weight`` is ``[out_features, in_features]``, ``weight_scale`` one number or one
    for each output channel. The library multiplies with the weight turned, which is a view of it.
    """

    def create_weights(
        self, layer: nn.Module, in_features: int, out_features: int, dtype: torch.dtype
    ) -> None:
        """``weight`` and ``weight_scale``; a checkpoint with one scale fills all of them."""
        weight = torch.empty(out_features, in_features, dtype=torch.float8_e4m3fn)
        scale = torch.empty(out_features, dtype=torch.float32)
        layer.register_parameter("weight", nn.Parameter(weight, requires_grad=False))
        layer.register_parameter("weight_scale", nn.Parameter(scale, requires_grad=False))

    def transform_weight(self, layer: nn.Module, name: str, loaded: torch.Tensor) -> torch.Tensor:
        """One scale for all channels is written out; a column of scales becomes a row."""
        if name != "weight_scale":
            return loaded
        num_channels = layer.get_parameter("weight").shape[0]
        return loaded.float().reshape(-1).expand(num_channels)

    def post_load(self, layer: nn.Module) -> None:
        """Nothing: the library takes the weight as it lies."""

    def apply(self, layer: nn.Module, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Weights are widened inside the kernel, activations stay as they are."""
        product: torch.Tensor = torch.ops._xpu_C.fp8_gemm_w8a16(
            x.contiguous(),
            layer.get_parameter("weight").t(),
            B_scale_=layer.get_parameter("weight_scale"),
            bias_=bias,
        )
        return product
