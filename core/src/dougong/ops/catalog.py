"""The op catalogue: every key and its class."""

from __future__ import annotations

from dougong.ops.activation import GeluAndMul, SiluAndMul
from dougong.ops.custom_op import CustomOp
from dougong.ops.embedding import Embedding, LMHead
from dougong.ops.encoder_attention import EncoderAttention
from dougong.ops.layer_norm import LayerNorm
from dougong.ops.linear import GateUpAct, Linear
from dougong.ops.moe import MoEExperts, MoERoute
from dougong.ops.norm import FusedAddRMSNorm, RMSNorm
from dougong.ops.penalties import Penalties
from dougong.ops.qkv_norm_rope import QKVNormRope
from dougong.ops.quantize import Dequantize, Quantize
from dougong.ops.rotary import RotaryEmbedding
from dougong.ops.sampling import GreedySample, Logprobs, TopKTopP

OPS: dict[str, type[CustomOp]] = {
    op.key: op
    for op in (
        Dequantize,
        Embedding,
        EncoderAttention,
        FusedAddRMSNorm,
        GateUpAct,
        GeluAndMul,
        GreedySample,
        LMHead,
        LayerNorm,
        Linear,
        Logprobs,
        MoEExperts,
        MoERoute,
        Penalties,
        QKVNormRope,
        Quantize,
        RMSNorm,
        RotaryEmbedding,
        SiluAndMul,
        TopKTopP,
    )
}
"""Op key → class. Keys are stable names: part of the published contract."""

OP_KEYS = frozenset(OPS)
