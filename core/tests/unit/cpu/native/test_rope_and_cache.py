from __future__ import annotations

from typing import Any

import pytest
import torch

from dougong.contracts import UnsupportedError
from dougong.cpu.native import NativeLibrary, bind_rope, bind_rope_and_write_kv, bind_write_kv

DTYPES = [torch.float32, torch.bfloat16]
POISON = -99.0


def table_of(rotary_dim: int, positions: int = 50) -> torch.Tensor:
    angle = torch.arange(positions)[:, None] * torch.rand(rotary_dim // 2)
    return torch.cat([angle.cos(), angle.sin()], dim=1)


def rotated(
    x: torch.Tensor,
    table: torch.Tensor,
    positions: torch.Tensor,
    head_dim: int,
    *,
    interleaved: bool,
) -> torch.Tensor:
    rotary_dim = table.shape[1]
    cos, sin = table[positions].double()[:, None].chunk(2, dim=-1)
    heads = x.double().view(len(x), -1, head_dim).clone()
    part = heads[..., :rotary_dim]
    pair = (part[..., ::2], part[..., 1::2]) if interleaved else part.chunk(2, dim=-1)
    a, b = (half.clone() for half in pair)
    both = (a * cos - b * sin, b * cos + a * sin)
    joined = torch.stack(both, -1).flatten(-2) if interleaved else torch.cat(both, -1)
    heads[..., :rotary_dim] = joined
    return heads.flatten(1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(64, 64), (80, 20), (16, 2)])
def test_rope_rotates_slices_of_a_fused_projection(
    library: NativeLibrary, head_dim: int, rotary_dim: int, interleaved: bool, dtype: torch.dtype
) -> None:
    table = table_of(rotary_dim)
    rope = bind_rope(
        library,
        table,
        head_dim=head_dim,
        num_heads=3,
        num_kv_heads=1,
        dtype=dtype,
        interleaved=interleaved,
    )
    for tokens in (1, 9, 200):
        qkv = torch.randn(tokens, 5 * head_dim).to(dtype)
        before = qkv.clone()
        positions = torch.randint(0, 50, (tokens,))
        q, k = qkv[:, : 3 * head_dim], qkv[:, 3 * head_dim : 4 * head_dim]
        want = rotated(
            before[:, : 4 * head_dim], table, positions, head_dim, interleaved=interleaved
        )
        rope(q, k, positions)
        tolerance: dict[str, Any] = {
            "rtol": 2**-8 if dtype == torch.bfloat16 else 1e-6,
            "atol": 2e-6,
        }
        torch.testing.assert_close(qkv[:, : 4 * head_dim].double(), want, **tolerance)
        assert torch.equal(qkv[:, 4 * head_dim :], before[:, 4 * head_dim :])


def caches_of(
    dtype: torch.dtype, blocks: int = 7, heads: int = 2, block_size: int = 8, head_dim: int = 16
) -> torch.Tensor:
    return torch.full((2, blocks, heads, block_size, head_dim), POISON, dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "cache_dtype"),
    [
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.float32, torch.bfloat16),
    ],
    ids=str,
)
def test_keys_and_values_land_in_their_slots_and_nowhere_else(
    library: NativeLibrary, dtype: torch.dtype, cache_dtype: torch.dtype
) -> None:
    cache = caches_of(cache_dtype)
    k, v = torch.randn(2, 5, 32).to(dtype)
    slots = torch.tensor([0, -1, 55, 9, -1])
    bind_write_kv(library, cache[0], cache[1], dtype=dtype)(k, v, slots)
    want = caches_of(cache_dtype)
    for token in (0, 2, 3):
        block, offset = divmod(int(slots[token]), 8)
        want[0, block, :, offset] = k[token].view(2, 16)
        want[1, block, :, offset] = v[token].view(2, 16)
    assert torch.equal(cache, want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("tokens", [1, 300])
def test_rope_and_write_in_one_pass_equals_the_two(
    library: NativeLibrary, dtype: torch.dtype, tokens: int
) -> None:
    table = table_of(16)
    qkv = torch.randn(tokens, 8 * 16).to(dtype)
    positions = torch.randint(0, 50, (tokens,))
    slots = torch.randperm(320)[:tokens]
    slots[::7] = -1
    results = []
    for fused in (True, False):
        mine, cache = qkv.clone(), caches_of(dtype, blocks=40)
        q, k, v = mine[:, :64], mine[:, 64:96], mine[:, 96:]
        if fused:
            both = bind_rope_and_write_kv(
                library, table, cache[0], cache[1], num_heads=4, dtype=dtype
            )
            both(q, k, v, positions, slots)
        else:
            sizes: dict[str, Any] = {"head_dim": 16, "num_heads": 4, "num_kv_heads": 2}
            bind_rope(library, table, dtype=dtype, **sizes)(q, k, positions)
            bind_write_kv(library, cache[0], cache[1], dtype=dtype)(k, v, slots)
        results.append((mine, cache))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_tables_and_caches_that_do_not_fit_are_refused(library: NativeLibrary) -> None:
    sizes: dict[str, Any] = {
        "head_dim": 16,
        "num_heads": 1,
        "num_kv_heads": 1,
        "dtype": torch.float32,
    }
    with pytest.raises(UnsupportedError, match="even"):
        bind_rope(library, torch.zeros(4, 18), **sizes)
    with pytest.raises(UnsupportedError, match="float32"):
        bind_rope(library, torch.zeros(4, 16).bfloat16(), **sizes)
    cache = caches_of(torch.float32)
    with pytest.raises(UnsupportedError, match="cannot be written"):
        bind_write_kv(library, cache[0], cache[1], dtype=torch.bfloat16)
