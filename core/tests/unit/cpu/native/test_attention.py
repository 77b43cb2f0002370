from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from dougong.contracts import UnsupportedError
from dougong.cpu.memory import resident_bytes
from dougong.cpu.native import (
    NativeLibrary,
    attention_workspace_bytes,
    bind_paged_attention,
    unsupported_attention,
)

PAIRS = [
    (torch.float32, torch.float32),
    (torch.bfloat16, torch.bfloat16),
    (torch.float32, torch.bfloat16),
]


class Sequences:
    """Random keys and values of some sequences, and paged caches that hold them.

    Everything that must not be read is NaN, if not told otherwise: blocks nobody owns, and what
    lies behind the end.
    """

    def __init__(
        self, seq_lens: list[int], num_kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> None:
        self.keys = [torch.randn(n, num_kv_heads, head_dim).to(dtype) for n in seq_lens]
        self.values = [torch.randn(n, num_kv_heads, head_dim).to(dtype) for n in seq_lens]

    def page(
        self, seq_lens: list[int], block_size: int, behind: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        needed = [-(-n // block_size) for n in seq_lens]
        ids = (torch.randperm(sum(needed)) + 1).tolist()
        _, heads, dim = self.keys[0].shape
        shape = (sum(needed) + 1, heads, block_size, dim)
        cache = torch.full((2, *shape), behind, dtype=self.keys[0].dtype)
        # An entry outside every cache: reading through it would end the process.
        table = torch.full((len(seq_lens), max(needed, default=0) + 2), 2**30, dtype=torch.int32)
        for i, (n, blocks) in enumerate(zip(seq_lens, needed, strict=True)):
            for j in range(blocks):
                table[i, j] = block = ids.pop()
                end = min(n, (j + 1) * block_size)
                for which, rows in enumerate((self.keys[i], self.values[i])):
                    part = rows[j * block_size : end].transpose(0, 1)
                    cache[which, block, :, : part.shape[1]] = part
        return cache, table


def run(
    library: NativeLibrary,
    sequences: Sequences,
    q: torch.Tensor,
    seq_lens: list[int],
    q_lens: list[int],
    *,
    block_size: int = 16,
    behind: float = math.nan,
    **options: Any,
) -> torch.Tensor:
    cache, table = sequences.page(seq_lens, block_size, behind)
    heads_dim = q.shape[1]
    dim = cache.shape[-1]
    attention = bind_paged_attention(
        library,
        cache[0],
        cache[1],
        num_heads=heads_dim // dim,
        dtype=q.dtype,
        **({"scale": dim**-0.5} | options),
    )
    starts = torch.tensor([0, *q_lens]).cumsum(0).int()
    out = torch.full((len(q) + 1, heads_dim), 5.0, dtype=q.dtype)
    attention(q, table, torch.tensor(seq_lens, dtype=torch.int32), starts, out)
    assert (out[-1] == 5.0).all()
    return out[:-1]


def expected(
    sequences: Sequences,
    q: torch.Tensor,
    seq_lens: list[int],
    q_lens: list[int],
    *,
    scale: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    rows = []
    start = 0
    for i, (n, m) in enumerate(zip(seq_lens, q_lens, strict=True)):
        keys, values = sequences.keys[i][:n].double(), sequences.values[i][:n].double()
        heads, dim = keys.shape[1:]
        queries = q[start : start + m].double().view(m, heads, q.shape[1] // heads // dim, dim)
        scores = torch.einsum("mhgd,nhd->hgmn", queries, keys) * (scale or dim**-0.5)
        if softcap:
            scores = softcap * (scores / softcap).tanh()
        ago = torch.arange(n - m, n)[:, None] - torch.arange(n)
        hidden = (ago < 0) | (ago >= (sliding_window or n + 1))
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        rows.append(torch.einsum("hgmn,nhd->mhgd", weights, values).flatten(1))
        start += m
    return torch.cat(rows)


def check(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> None:
    low = dtype == torch.bfloat16
    tolerance: dict[str, Any] = (
        {"rtol": 2**-7, "atol": 2**-7} if low else {"rtol": 1e-5, "atol": 2e-6}
    )
    torch.testing.assert_close(got.double(), want, **tolerance)


@pytest.mark.parametrize(("dtype", "cache_dtype"), PAIRS, ids=str)
@pytest.mark.parametrize("head_dim", [16, 64, 80, 256])
def test_a_mixed_batch_equals_float64_attention(
    library: NativeLibrary, head_dim: int, dtype: torch.dtype, cache_dtype: torch.dtype
) -> None:
    seq_lens, q_lens = [1, 40, 129, 64, 77], [1, 1, 129, 0, 30]
    sequences = Sequences(seq_lens, 2, head_dim, cache_dtype)
    q = torch.randn(sum(q_lens), 6 * head_dim).to(dtype)
    got = run(library, sequences, q, seq_lens, q_lens)
    check(got, expected(sequences, q, seq_lens, q_lens), dtype)


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(1, 1), (4, 4), (8, 1), (130, 1)])
def test_any_sharing_of_kv_heads(library: NativeLibrary, num_heads: int, num_kv_heads: int) -> None:
    sequences = Sequences([70], num_kv_heads, 32, torch.float32)
    q = torch.randn(20, num_heads * 32)
    got = run(library, sequences, q, [70], [20])
    check(got, expected(sequences, q, [70], [20]), torch.float32)


@pytest.mark.parametrize(("dtype", "cache_dtype"), PAIRS, ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {"sliding_window": 1},
        {"sliding_window": 33},
        {"sliding_window": 600},
        {"softcap": 3.0},
        {"softcap": 2.0, "sliding_window": 70, "scale": 0.5},
    ],
    ids=str,
)
def test_windows_and_caps(
    library: NativeLibrary, options: dict[str, Any], dtype: torch.dtype, cache_dtype: torch.dtype
) -> None:
    seq_lens, q_lens = [700, 150], [1, 150]
    sequences = Sequences(seq_lens, 1, 32, cache_dtype)
    q = torch.randn(sum(q_lens), 64).to(dtype)
    got = run(library, sequences, q, seq_lens, q_lens, **options)
    check(got, expected(sequences, q, seq_lens, q_lens, **options), dtype)


def test_keys_before_every_window_are_not_read(library: NativeLibrary) -> None:
    sequences = Sequences([200], 1, 16, torch.float32)
    q = torch.randn(1, 16)
    want = run(library, sequences, q, [200], [1], sliding_window=20)
    sequences.keys[0][:180] = math.nan
    sequences.values[0][:180] = math.nan
    assert torch.equal(run(library, sequences, q, [200], [1], sliding_window=20), want)


@pytest.mark.parametrize(("dtype", "cache_dtype"), PAIRS, ids=str)
@pytest.mark.parametrize("window", [None, 90])
def test_a_row_is_the_same_bits_however_it_is_computed(
    library: NativeLibrary, window: int | None, dtype: torch.dtype, cache_dtype: torch.dtype
) -> None:
    length = 1100  # more than two chunks of keys
    sequences = Sequences([length, 300], 2, 32, cache_dtype)
    q = torch.randn(length, 6 * 32).to(dtype)
    whole = run(library, sequences, q, [length], [length], sliding_window=window)
    for block_size in (1, 8, 48, 256):
        for first, last in [(0, 7), (60, 200), (511, 513), (1099, 1100)]:
            part = run(
                library,
                sequences,
                q[first:last],
                [last],
                [last - first],
                block_size=block_size,
                sliding_window=window,
            )
            assert torch.equal(part, whole[first:last])
    rows = torch.cat([q[1099:], torch.randn(300, 6 * 32).to(dtype)])
    mixed = run(library, sequences, rows, [1100, 300], [1, 300], sliding_window=window)
    assert torch.equal(mixed[0], whole[1099])


@pytest.mark.parametrize("group", range(1, 8))
@pytest.mark.parametrize("window", [None, 30])
def test_a_lone_token_gets_the_bits_it_gets_within_a_prompt(
    library: NativeLibrary, group: int, window: int | None
) -> None:
    """One token of up to six heads per KV head has a way of its own through a tile."""
    sequences = Sequences([130], 2, 80, torch.bfloat16)
    q = torch.randn(130, 2 * group * 80).bfloat16()
    whole = run(library, sequences, q, [130], [130], sliding_window=window)
    for at in (0, 1, 15, 62, 63, 64, 100, 129):
        alone = run(library, sequences, q[at : at + 1], [at + 1], [1], sliding_window=window)
        assert torch.equal(alone[0], whole[at])


def test_queries_and_outputs_may_be_slices_of_wider_tensors(library: NativeLibrary) -> None:
    sequences = Sequences([50], 1, 16, torch.bfloat16)
    wide = torch.randn(50, 96).bfloat16()
    want = run(library, sequences, wide[:, 16:64].contiguous(), [50], [50])
    assert torch.equal(run(library, sequences, wide[:, 16:64], [50], [50]), want)


def test_nan_is_not_hidden(library: NativeLibrary) -> None:
    sequences = Sequences([30], 1, 16, torch.float32)
    sequences.keys[0][20] = math.nan
    got = run(library, sequences, torch.randn(30, 16), [30], [30])
    assert got[:20].isfinite().all()
    assert got[20:].isnan().all()


@pytest.mark.parametrize(("dtype", "cache_dtype"), PAIRS, ids=str)
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_what_slots_behind_the_end_hold_changes_no_bit(
    library: NativeLibrary, poison: float, dtype: torch.dtype, cache_dtype: torch.dtype
) -> None:
    seq_lens, q_lens = [1, 37, 130, 75], [1, 1, 130, 20]
    sequences = Sequences(seq_lens, 2, 32, cache_dtype)
    q = torch.randn(sum(q_lens), 6 * 32).to(dtype)
    want = run(library, sequences, q, seq_lens, q_lens, behind=0.0)
    got = run(library, sequences, q, seq_lens, q_lens, behind=poison)
    assert want.isfinite().all()
    assert torch.equal(got, want)


@pytest.mark.parametrize(("dtype", "cache_dtype"), PAIRS, ids=str)
@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("at", [1, 64, 90])
def test_a_row_is_untouched_by_what_a_later_token_of_its_sequence_wrote(
    library: NativeLibrary,
    at: int,
    group: int,
    poison: float,
    dtype: torch.dtype,
    cache_dtype: torch.dtype,
) -> None:
    sequences = Sequences([130], 1, 32, cache_dtype)
    q = torch.randn(130, group * 32).to(dtype)
    want = run(library, sequences, q, [130], [130])
    sequences.keys[0][at:] = math.nan
    sequences.values[0][at, :, 5] = poison
    got = run(library, sequences, q, [130], [130])
    assert torch.equal(got[:at], want[:at])
    assert not got[at:].isfinite().all(1).any()


@pytest.mark.parametrize(("dtype", "cache_dtype"), PAIRS, ids=str)
@pytest.mark.parametrize("at", [0, 17, 64, 99])
def test_a_row_is_untouched_by_what_its_window_has_left_behind(
    library: NativeLibrary, at: int, dtype: torch.dtype, cache_dtype: torch.dtype
) -> None:
    sequences = Sequences([130], 1, 32, cache_dtype)
    q = torch.randn(130, 64).to(dtype)
    want = run(library, sequences, q, [130], [130], sliding_window=20)
    sequences.values[0][at] = math.nan
    got = run(library, sequences, q, [130], [130], sliding_window=20)
    assert got[at : at + 20].isnan().all()
    for rows in (slice(0, at), slice(at + 20, 130)):
        assert torch.equal(got[rows], want[rows])


class OneBlock:
    """Sequences of any length whose blocks are all the same one."""

    def __init__(self, library: NativeLibrary, num_heads: int, head_dim: int) -> None:
        self.cache = torch.randn(2, 1, 1, 128, head_dim)
        self.attention = bind_paged_attention(
            library,
            self.cache[0],
            self.cache[1],
            num_heads=num_heads,
            scale=head_dim**-0.5,
            dtype=torch.float32,
        )
        self.width = num_heads * head_dim

    def run(self, q: torch.Tensor, length: int, out: torch.Tensor) -> None:
        table = torch.zeros(1, -(-length // 128), dtype=torch.int32)
        starts = torch.tensor([0, len(q)], dtype=torch.int32)
        self.attention(q, table, torch.tensor([length], dtype=torch.int32), starts, out)


def test_many_chunks_split_over_threads_give_the_same_bits_as_one_thread(
    library: NativeLibrary,
) -> None:
    """More of them than are held at once: 177 parts of 105 kB against 8 MiB."""
    case = OneBlock(library, 4, 256)
    alone = dataclasses.replace(library, num_threads=1)
    serial = OneBlock(alone, 4, 256)
    serial.cache.copy_(case.cache)
    q = torch.randn(50, case.width)
    outs = [torch.empty_like(q) for _ in range(2)]
    case.run(q, 30_000, outs[0])
    serial.run(q, 30_000, outs[1])
    assert torch.equal(*outs)


def test_a_long_context_takes_no_more_memory_than_is_announced(library: NativeLibrary) -> None:
    case = OneBlock(library, 96, 256)
    announced = attention_workspace_bytes(
        library,
        head_dim=256,
        num_heads=96,
        num_kv_heads=1,
        dtype=torch.float32,
        cache_dtype=torch.float32,
    )
    assert announced < 12 << 20
    q = torch.randn(1, case.width)
    out = torch.empty_like(q)
    before = resident_bytes()
    case.run(q, 200_000, out)  # 391 parts of 105 kB would be 41 MB
    assert resident_bytes() - before < announced + (2 << 20)


def test_the_announced_memory_grows_with_threads_and_not_with_one_thread_split(
    library: NativeLibrary,
) -> None:
    sizes = [
        attention_workspace_bytes(
            dataclasses.replace(library, num_threads=threads),
            head_dim=64,
            num_heads=9,
            num_kv_heads=3,
            dtype=torch.bfloat16,
            cache_dtype=torch.bfloat16,
        )
        for threads in (1, 2, 8)
    ]
    assert 0 < sizes[0] < 1 << 18
    assert sizes[0] < sizes[1] < sizes[2] < 12 << 20


def test_what_is_refused_is_refused_with_its_reason() -> None:
    fine: dict[str, Any] = {
        "head_dim": 64,
        "num_heads": 4,
        "num_kv_heads": 2,
        "dtype": torch.bfloat16,
        "cache_dtype": torch.bfloat16,
    }
    assert unsupported_attention(**fine) is None
    changes: list[tuple[dict[str, Any], str]] = [
        ({"head_dim": 72}, "multiples of 16"),
        ({"head_dim": 272}, "multiples of 16"),
        ({"num_kv_heads": 3}, "evenly"),
        ({"dtype": torch.float16}, "float16"),
        ({"cache_dtype": torch.float32}, "float32"),
    ]
    for change, word in changes:
        assert word in str(unsupported_attention(**(fine | change)))


def test_binding_raises_what_the_reason_says(library: NativeLibrary) -> None:
    cache = torch.zeros(2, 1, 1, 16, 72)
    with pytest.raises(UnsupportedError, match="multiples of 16"):
        bind_paged_attention(
            library, cache[0], cache[1], num_heads=1, scale=1.0, dtype=torch.float32
        )
