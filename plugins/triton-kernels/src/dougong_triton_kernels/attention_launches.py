"""What the attention launchers check and launch, as data; nothing here needs triton."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dougong_triton_kernels import checks
from dougong_triton_kernels.launching import Launch
from dougong_triton_kernels.targets import Tiles, target

MAX_SPLITS = 64
"""Most parts of a split decode."""

_SMALLEST_DOT = 16  # rows that a matrix instruction takes at least


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """What `paged_decode` and `paged_attention` take alike, under the names they explain."""

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_table: torch.Tensor
    seq_lens: torch.Tensor
    scale: float
    out: torch.Tensor
    sliding_window: int | None = None
    soft_cap: float | None = None

    def check(self) -> None:
        """Raise what both raise."""
        checks.same_kind(q=self.q, k_cache=self.k_cache, v_cache=self.v_cache, out=self.out)
        checks.shape("q", self.q, None, None, None)
        _, num_heads, head_dim = self.q.shape
        checks.head_dim(head_dim)
        checks.shape("k_cache", self.k_cache, None, None, None, head_dim)
        checks.shape("v_cache", self.v_cache, *self.k_cache.shape)
        checks.shape("out", self.out, *self.q.shape)
        num_kv_heads = self.k_cache.shape[2]
        if num_kv_heads == 0 or num_heads % num_kv_heads:
            raise ValueError(
                f"q has {num_heads} heads and k_cache {num_kv_heads}; query heads share KV heads "
                "in groups of one size, so the second number divides the first"
            )
        checks.shape("seq_lens", self.seq_lens, None)
        checks.shape("block_table", self.block_table, self.seq_lens.shape[0], None)
        checks.index("seq_lens", self.seq_lens, torch.int32)
        checks.index("block_table", self.block_table, torch.int32)
        checks.same_device("q", self.q, seq_lens=self.seq_lens, block_table=self.block_table)
        checks.terms(self.sliding_window, self.soft_cap)

    def tiles(self, phase: str, arch: str) -> Tiles:
        """Of a chip, for these heads."""
        return target(arch).tiles(phase, self.dim_block, self.q.element_size())

    @property
    def dim_block(self) -> int:
        """Elements of a head, padded to a power of two."""
        return max(checks.next_power_of_2(self.q.shape[-1]), _SMALLEST_DOT)

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.q.shape[1] // self.k_cache.shape[2]

    def tensors(self) -> dict[str, Any]:
        """First arguments of both kernels, in order."""
        return {
            "q_ptr": self.q,
            "k_ptr": self.k_cache,
            "v_ptr": self.v_cache,
            "table_ptr": self.block_table,
            "length_ptr": self.seq_lens,
        }

    def terms(self) -> dict[str, Any]:
        """Numbers; what there is none of is 0 and not read."""
        return {
            "scale": float(self.scale),
            "soft_cap": float(self.soft_cap or 0.0),
            "window": self.sliding_window or 0,
        }

    def cache_strides(self) -> dict[str, int]:
        """In elements."""
        return {
            "k_block": self.k_cache.stride(0),
            "k_slot": self.k_cache.stride(1),
            "k_head": self.k_cache.stride(2),
            "v_block": self.v_cache.stride(0),
            "v_slot": self.v_cache.stride(1),
            "v_head": self.v_cache.stride(2),
            "table_row": self.block_table.stride(0),
        }

    def constants(self) -> dict[str, Any]:
        """Compile-time values of both kernels."""
        return {
            "GROUP": self.group,
            "DIM": self.q.shape[-1],
            "DIM_BLOCK": self.dim_block,
            "BLOCK_SIZE": self.k_cache.shape[1],
            "HAS_CAP": self.soft_cap is not None,
            "HAS_WINDOW": self.sliding_window is not None,
            "INTERPRETED": False,
        }


def check_paged_decode(call: Call, num_splits: int) -> None:
    """Raise what `paged_decode` raises."""
    call.check()
    checks.shape("seq_lens", call.seq_lens, call.q.shape[0])
    if not 1 <= num_splits <= MAX_SPLITS:
        raise ValueError(f"num_splits is {num_splits}; expected 1 to {MAX_SPLITS}")


def plan_paged_decode(call: Call, num_splits: int, arch: str) -> tuple[Launch, ...]:
    """What `paged_decode` launches, in order: one kernel, or with splits two."""
    num_seqs, num_heads, head_dim = call.q.shape
    num_kv_heads = call.k_cache.shape[2]
    tiles = call.tiles("decode", arch)
    result, stats = call.out, call.out
    if num_splits > 1:
        parts = (num_seqs, num_heads, num_splits)
        result = torch.empty(*parts, head_dim, dtype=torch.float32, device=call.q.device)
        stats = torch.empty(*parts, 2, dtype=torch.float32, device=call.q.device)
    decode = Launch(
        kernel="attention.paged_decode_kernel",
        grid=(num_seqs, num_kv_heads, num_splits),
        arguments={
            **call.tensors(),
            "out_ptr": result,
            "stats_ptr": stats,
            **call.terms(),
            "q_row": call.q.stride(0),
            "q_head": call.q.stride(1),
            **call.cache_strides(),
            "out_row": result.stride(0),
            "out_head": result.stride(1),
            "out_split": result.stride(2) if num_splits > 1 else 0,
        },
        constants={
            **call.constants(),
            "GROUP_BLOCK": max(checks.next_power_of_2(call.group), _SMALLEST_DOT),
            "TILE": tiles.tile,
            "SPLITS": num_splits,
        },
        options=tiles.options,
        may_spill=tiles.may_spill,
    )
    if num_splits == 1:
        return (decode,)
    combine = Launch(
        kernel="attention.combine_splits_kernel",
        grid=(num_seqs, num_heads, 1),
        arguments={
            "product_ptr": result,
            "stats_ptr": stats,
            "out_ptr": call.out,
            "out_row": call.out.stride(0),
            "out_head": call.out.stride(1),
        },
        constants={
            "NUM_HEADS": num_heads,
            "DIM": head_dim,
            "DIM_BLOCK": call.dim_block,
            "SPLITS": num_splits,
            "SPLIT_BLOCK": checks.next_power_of_2(num_splits),
            "INTERPRETED": False,
        },
        options={"num_warps": 4, "num_stages": 1},
    )
    return decode, combine


def check_paged_attention(call: Call, cu_seqlens_q: torch.Tensor, max_query_len: int) -> None:
    """Raise what `paged_attention` raises."""
    call.check()
    checks.shape("cu_seqlens_q", cu_seqlens_q, call.seq_lens.shape[0] + 1)
    checks.index("cu_seqlens_q", cu_seqlens_q, torch.int32)
    checks.same_device("q", call.q, cu_seqlens_q=cu_seqlens_q)
    if max_query_len < 0:
        raise ValueError(f"max_query_len is {max_query_len}; it counts query tokens")


def plan_paged_attention(
    call: Call, cu_seqlens_q: torch.Tensor, max_query_len: int, arch: str
) -> Launch:
    """What `paged_attention` launches."""
    tiles = call.tiles("mixed", arch)
    return Launch(
        kernel="attention.paged_attention_kernel",
        grid=(
            -(-max_query_len * call.group // tiles.rows),
            call.k_cache.shape[2],
            call.seq_lens.shape[0],
        ),
        arguments={
            **call.tensors(),
            "start_ptr": cu_seqlens_q,
            "out_ptr": call.out,
            **call.terms(),
            "q_token": call.q.stride(0),
            "q_head": call.q.stride(1),
            **call.cache_strides(),
            "out_token": call.out.stride(0),
            "out_head": call.out.stride(1),
        },
        constants={**call.constants(), "ROWS": tiles.rows, "TILE": tiles.tile},
        options=tiles.options,
        may_spill=tiles.may_spill,
    )
