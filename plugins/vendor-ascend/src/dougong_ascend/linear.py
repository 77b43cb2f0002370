"""Linear layers with their weight in the fractal format (NZ), in which the matrix units read it.

The weight keeps its meaning and shape; only the runtime sees another order in memory. 310P is given
it always. On A2 and A3 the operator decides, as there is no way back to plain weights. Vectors (one
row or one column) are not taken, nor float32, which has no such format.
"""

from __future__ import annotations

import torch
from dougong.contracts import AtLeast, Needs
from dougong.ops import Linear, register_kernel
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong_ascend.names import NZ_FORMAT, NZ_WEIGHTS_ENV, TORCH_NPU

_NAME = "ascend/nz_linear"
_NAME_310P = "ascend/nz_linear_310p"
_HALVES = frozenset({"bfloat16", "float16"})


@register_kernel(
    "linear",
    name=_NAME_310P,
    when=Needs(
        dtype="float16",
        library=TORCH_NPU,
        features={"ascend.paged_nz"},
        weight_format=_HALVES,
        in_features=AtLeast(2),
        out_features=AtLeast(2),
    ),
)
@register_kernel(
    "linear",
    name=_NAME,
    when=Needs(
        dtype=_HALVES,
        library=TORCH_NPU,
        features={"ascend.fused_infer"},
        env={NZ_WEIGHTS_ENV: "1"},
        weight_format=_HALVES,
        in_features=AtLeast(2),
        out_features=AtLeast(2),
    ),
)
class NZLinear:
    """Its weight, stored anew; the first copy is given back where nothing else reads it."""

    def __init__(self, op: Linear) -> None:
        self._bias = op.bias
        self._weight = torch.ops.npu.npu_format_cast(op.weight, NZ_FORMAT)
        if op.is_alone(_NAME) or op.is_alone(_NAME_310P):
            op.weight.data = op.weight.new_empty(0)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See `Linear`."""
        return F.linear(x, self._weight, self._bias)
