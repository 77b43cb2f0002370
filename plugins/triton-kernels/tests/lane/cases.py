"""Launches that are compiled ahead: what a model would launch, with tensors of no memory."""

from __future__ import annotations

import torch

from dougong_triton_kernels.activation import plan_silu_and_mul
from dougong_triton_kernels.attention_launches import Call, plan_paged_attention, plan_paged_decode
from dougong_triton_kernels.kv_cache import plan_write_kv
from dougong_triton_kernels.launching import Launch
from dougong_triton_kernels.norm import plan_rms_norm
from dougong_triton_kernels.rotary import plan_rotary_embedding

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
ATTENTION = (
    ("bf16", 64),
    ("bf16", 80),
    ("bf16", 128),
    ("bf16", 256),
    ("fp16", 128),
    ("fp32", 128),
    ("fp32", 256),
)
"""Dtype and size of heads."""

_MANY_BLOCKS = 100_000
_TOKENS, _HEADS, _KV_HEADS, _BLOCKS, _BLOCK_SIZE, _SEQUENCES = 256, 32, 8, 100, 16, 32


def launches(arch: str) -> dict[str, Launch]:
    """By a name that a report can show."""
    found: dict[str, Launch] = {}
    for dtype, head_dim in ATTENTION:
        found |= attention(arch, dtype, head_dim, is_plain=False)
    found |= attention(arch, "bf16", 128, is_plain=True, suffix=", plain, large cache")
    found |= attention(arch, "bf16", 256, is_plain=True, suffix=", plain, large cache")
    found |= split_decode(arch)
    for dtype in ("bf16", "fp32"):
        found |= elementwise(dtype)
    return found


def attention(
    arch: str, dtype: str, head_dim: int, *, is_plain: bool, suffix: str = ""
) -> dict[str, Launch]:
    """Decode and mixed."""
    call = attention_call(dtype, head_dim, is_plain=is_plain)
    name = f"attention {dtype} {head_dim}{suffix}"
    return {
        f"decode {name}": plan_paged_decode(call, 1, arch)[0],
        f"mixed {name}": plan_paged_attention(call, starts(), _TOKENS, arch),
    }


def split_decode(arch: str) -> dict[str, Launch]:
    """Both kernels of a decode in parts."""
    call = attention_call("bf16", 128, is_plain=True)
    decode, combine = plan_paged_decode(call, 8, arch)
    return {"split decode attention bf16 128": decode, "combine bf16 128": combine}


def attention_call(dtype: str, head_dim: int, *, is_plain: bool) -> Call:
    """Grouped heads over a paged cache; plain ones over a cache of more than 2 GiB."""
    blocks = _MANY_BLOCKS if is_plain else _BLOCKS
    cache = (blocks, _BLOCK_SIZE, _KV_HEADS, head_dim)
    return Call(
        q=_meta(dtype, _SEQUENCES, _HEADS, head_dim),
        k_cache=_meta(dtype, *cache),
        v_cache=_meta(dtype, *cache),
        block_table=_index(_SEQUENCES, 64),
        seq_lens=_index(_SEQUENCES),
        scale=0.125,
        out=_meta(dtype, _SEQUENCES, _HEADS, head_dim),
        sliding_window=None if is_plain else 1024,
        soft_cap=None if is_plain else 30.0,
    )


def starts() -> torch.Tensor:
    """Of the queries of each sequence."""
    return _index(_SEQUENCES + 1)


def elementwise(dtype: str) -> dict[str, Launch]:
    """Everything else."""
    x = _meta(dtype, _TOKENS, 4096)
    wide = _meta(dtype, _TOKENS, 8192)
    q, k = _meta(dtype, _TOKENS, _HEADS, 128), _meta(dtype, _TOKENS, _KV_HEADS, 128)
    cache = _meta(dtype, _BLOCKS, _BLOCK_SIZE, _KV_HEADS, 128)
    cos_sin = torch.empty(4096, 128, dtype=torch.float32, device="meta")
    positions = torch.empty(_TOKENS, dtype=torch.int64, device="meta")
    return {
        f"rms_norm {dtype} 4096": plan_rms_norm(x, None, _meta(dtype, 4096), 1e-5, x),
        f"rms_norm {dtype} heads of 128": plan_rms_norm(q, None, _meta(dtype, 128), 1e-5, q),
        f"add rms_norm {dtype} 4096": plan_rms_norm(x, x, _meta(dtype, 4096), 1e-5, x),
        f"add rms_norm {dtype} 8192": plan_rms_norm(wide, wide, _meta(dtype, 8192), 1e-5, wide),
        f"silu_and_mul {dtype}": plan_silu_and_mul(wide, x),
        f"rotary neox {dtype}": plan_rotary_embedding(positions, q, k, cos_sin),
        f"rotary interleaved {dtype}": plan_rotary_embedding(
            positions, q, k, cos_sin, is_neox=False
        ),
        f"write_kv {dtype}": plan_write_kv(k, k, cache, cache, positions),
    }


def _meta(dtype: str, *shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=DTYPES[dtype], device="meta")


def _index(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.int32, device="meta")
