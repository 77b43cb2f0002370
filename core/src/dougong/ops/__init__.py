"""The op catalogue: everything a vendor may want to compute in its own way.

Models call ops and nothing else. Published to plugins under `CONTRACT_VERSION`.
"""

from __future__ import annotations

from dougong.contracts import (
    AtLeast,
    AtMost,
    Between,
    BindRequest,
    MultipleOf,
    Needs,
    OneOf,
)
from dougong.contracts.rank_plan import NATIVE
from dougong.ops.activation import GeluAndMul, SiluAndMul
from dougong.ops.catalog import OP_KEYS, OPS
from dougong.ops.custom_op import CustomOp
from dougong.ops.embedding import Embedding, LMHead
from dougong.ops.encoder_attention import EncoderAttention
from dougong.ops.layer_norm import LayerNorm
from dougong.ops.linear import GateUpAct, Linear
from dougong.ops.marks import register_kernel, register_op
from dougong.ops.moe import MoEExperts, MoERoute
from dougong.ops.norm import FusedAddRMSNorm, RMSNorm
from dougong.ops.penalties import Penalties
from dougong.ops.qkv_norm_rope import QKVNormRope
from dougong.ops.quant_formats import QUANT_FORMATS, QuantFormat
from dougong.ops.quantize import Dequantize, Quantize
from dougong.ops.rotary import RotaryEmbedding
from dougong.ops.sampling import GreedySample, Logprobs, TopKTopP

__all__ = [
    "NATIVE",
    "OPS",
    "OP_KEYS",
    "QUANT_FORMATS",
    "AtLeast",
    "AtMost",
    "Between",
    "BindRequest",
    "CustomOp",
    "Dequantize",
    "Embedding",
    "EncoderAttention",
    "FusedAddRMSNorm",
    "GateUpAct",
    "GeluAndMul",
    "GreedySample",
    "LMHead",
    "LayerNorm",
    "Linear",
    "Logprobs",
    "MoEExperts",
    "MoERoute",
    "MultipleOf",
    "Needs",
    "OneOf",
    "Penalties",
    "QKVNormRope",
    "QuantFormat",
    "Quantize",
    "RMSNorm",
    "RotaryEmbedding",
    "SiluAndMul",
    "TopKTopP",
    "register_kernel",
    "register_op",
]
