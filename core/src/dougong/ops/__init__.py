"""The op catalogue: everything a vendor may want to compute in its own way.

Models call ops and nothing else. Published to plugins under `CONTRACT_VERSION`.
"""

from __future__ import annotations

from dougong.ops.activation import GeluAndMul, SiluAndMul
from dougong.ops.binding import BindReport, bind_ops
from dougong.ops.catalog import OP_KEYS, OPS
from dougong.ops.conditions import BindRequest, Needs
from dougong.ops.custom_op import CustomOp
from dougong.ops.embedding import Embedding, LMHead
from dougong.ops.linear import GateUpAct, Linear
from dougong.ops.norm import FusedAddRMSNorm, RMSNorm
from dougong.ops.registry import Kernel, OpRegistry, register_kernel
from dougong.ops.rotary import RotaryEmbedding
from dougong.ops.sampling import GreedySample, Logprobs, TopKTopP

__all__ = [
    "OPS",
    "OP_KEYS",
    "BindReport",
    "BindRequest",
    "CustomOp",
    "Embedding",
    "FusedAddRMSNorm",
    "GateUpAct",
    "GeluAndMul",
    "GreedySample",
    "Kernel",
    "LMHead",
    "Linear",
    "Logprobs",
    "Needs",
    "OpRegistry",
    "RMSNorm",
    "RotaryEmbedding",
    "SiluAndMul",
    "TopKTopP",
    "bind_ops",
    "register_kernel",
]
