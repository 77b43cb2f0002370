"""Weights and activations of eight bits (W8A8): what this wheel computes with.

Version 1.0 of the contract hands kernels plain weights only, and calls no `LinearMethod`; so the
format is not claimed, and a plan says of such a checkpoint that it is not computed as stored. The
method is here, complete and tested, for models of a plugin's own.
"""

from __future__ import annotations

import torch
from dougong.contracts import LinearMethod, UnsupportedError
from torch import nn

from dougong_ascend.names import NZ_FORMAT

MAX_FEATURES = 65535


class W8A8DynamicLinear(LinearMethod):
    """int8 weights with a scale per output channel; activations are quantized token by token.

    Parameters: ``weight`` int8 ``[out_features, in_features]`` and ``weight_scale`` float32
    ``[out_features]``. A checkpoint's scale in bfloat16 is widened; one in float16 is refused, as
    the op refuses it (161002): the error would otherwise come in the first step.

    Args:
        fractal: Keep the weight in fractal format, which must be off where weights are loaded anew
            into a running engine.
    """

    def __init__(self, *, fractal: bool = False) -> None:
        self._fractal = fractal

    def create_weights(
        self, layer: nn.Module, in_features: int, out_features: int, dtype: torch.dtype
    ) -> None:
        """See `LinearMethod`; ``dtype`` is that of activations and of the result.

        Raises:
            UnsupportedError: The op takes no such size or dtype.
        """
        if max(in_features, out_features) > MAX_FEATURES:
            raise UnsupportedError(
                f"W8A8 of {in_features} by {out_features}: npu_quant_matmul takes at most "
                f"{MAX_FEATURES} of either; split the layer over more ranks"
            )
        if dtype not in (torch.bfloat16, torch.float16):
            raise UnsupportedError(
                f"W8A8 gives bfloat16 or float16, not {dtype}; start with --dtype bfloat16"
            )
        layer.weight = _frozen(torch.empty(out_features, in_features, dtype=torch.int8))
        layer.weight_scale = _frozen(torch.empty(out_features, dtype=torch.float32))

    def transform_weight(self, layer: nn.Module, name: str, loaded: torch.Tensor) -> torch.Tensor:
        """A scale as ``[out_features]`` in float32.

        Raises:
            UnsupportedError: The scale is float16.
        """
        if name != "weight_scale":
            return loaded
        if loaded.dtype not in (torch.float32, torch.bfloat16):
            raise UnsupportedError(
                f"a weight scale of {loaded.dtype}; npu_quant_matmul takes float32 or bfloat16 "
                "(error 161002): convert the checkpoint's scales to float32"
            )
        return loaded.float().flatten()

    def post_load(self, layer: nn.Module) -> None:
        """Turn the weight to ``[in_features, out_features]``; the first copy is given back, which
        tells a second call that it was done."""
        weight = layer.get_parameter("weight")
        if not weight.numel():
            return
        turned = weight.t().contiguous()
        if self._fractal:
            turned = torch.ops.npu.npu_format_cast(turned, NZ_FORMAT)
        layer.register_buffer("turned_weight", turned, persistent=False)
        weight.data = weight.new_empty(0)

    def apply(self, layer: nn.Module, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """See `LinearMethod`."""
        values, scales = torch.ops.npu.npu_dynamic_quant(x, dst_type=torch.int8)
        product: torch.Tensor = torch.ops.npu.npu_quant_matmul(
            values,
            layer.turned_weight,
            layer.weight_scale,
            pertoken_scale=scales,
            bias=bias,
            output_dtype=x.dtype,
        )
        return product


def _frozen(tensor: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)
