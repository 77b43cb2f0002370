"""Weights in the blocks of their file: products of the very values that the file holds."""

from __future__ import annotations

import pytest
import torch

from dougong.checkpoint.dequantize import dequantize_into
from dougong.contracts import UnsupportedError
from dougong.cpu.native import (
    NativeLibrary,
    bind_gate_up_act,
    bind_linear,
    embedding_from_blocks,
    pack_blocks,
    pack_gate_up_blocks,
    pack_linear,
)
from dougong.cpu.native.blocks import FORMATS

DTYPES = [torch.float32, torch.bfloat16]
SIZES = [(32, 1), (32, 33), (576, 192), (160, 70), (2080, 17)]


def random_blocks(storage: str, n: int, k: int, seed: int = 0) -> torch.Tensor:
    """Bytes with every pattern of integers, and scales and minima that are numbers."""
    generator = torch.Generator().manual_seed(seed)
    size = FORMATS[storage]
    raw = torch.randint(0, 256, (n, k // 32, size), generator=generator, dtype=torch.uint8)
    halves = (torch.randn(n, k // 32, 2, generator=generator) / 16).half().view(torch.uint8)
    head = 4 if storage == "q4_1" else 2
    raw[..., :head] = halves[..., :head]
    return raw.view(n, -1)


def plain(raw: torch.Tensor, storage: str, dtype: torch.dtype) -> torch.Tensor:
    n, k = raw.shape[0], raw.shape[1] // FORMATS[storage] * 32
    out = torch.empty(n * k, dtype=dtype)
    dequantize_into(raw.reshape(-1), storage.upper(), out)
    return out.view(n, k)


def rounds_no_weight(library: NativeLibrary, dtype: torch.dtype) -> bool:
    """Where bfloat16 products are, integers are multiplied as they are and scaled afterwards."""
    return dtype is torch.bfloat16 and library.level == "avx512_bf16"


def close(got: torch.Tensor, exact: torch.Tensor, size: torch.Tensor, k: int) -> None:
    """One rounding to the output's dtype, and float32 sums of terms of ``size`` together."""
    step = 2**-8 if got.dtype is torch.bfloat16 else 2**-23
    assert ((got.double() - exact).abs() <= step * exact.abs() + k * 2**-24 * size + 1e-30).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("storage", FORMATS)
@pytest.mark.parametrize(("k", "n"), SIZES)
def test_a_product_is_that_of_the_values_in_the_file(
    library: NativeLibrary, k: int, n: int, storage: str, dtype: torch.dtype
) -> None:
    raw = random_blocks(storage, n, k)
    blocks = pack_blocks(library, raw, storage, dtype)
    assert blocks.data.nbytes == -(-n // 16) * 16 * raw.shape[1], "as large as the file's"
    whole = pack_linear(library, plain(raw, storage, dtype))
    exact = plain(raw, storage, torch.float32).double()
    # Of q4_1 the integers' share and the minimum's may be larger than their sum.
    size = exact.abs() + (exact.abs().amax() * 16 if storage == "q4_1" else 0)
    bias = torch.randn(n)
    for out_dtype in DTYPES:
        calls = [
            bind_linear(library, one, bias=bias, out_dtype=out_dtype) for one in (blocks, whole)
        ]
        for m in (1, 2, 7, 50, 130):
            x = torch.randn(m, k).to(dtype)
            got, want = (torch.full((m, n + 3), 7.0, dtype=out_dtype) for _ in calls)
            calls[0](x, got[:, :n])
            calls[1](x, want[:, :n])
            assert (got[:, n:] == 7.0).all()
            if rounds_no_weight(library, dtype):
                terms = x.double().abs() @ size.T
                close(got[:, :n], x.double() @ exact.T + bias.double(), terms, k)
            else:
                assert torch.equal(got, want), "the bits of weights that were turned at load"


@pytest.mark.parametrize("storage", FORMATS)
def test_a_row_is_the_same_bits_alone_and_in_any_batch(
    library: NativeLibrary, storage: str
) -> None:
    for dtype in DTYPES:
        raw = random_blocks(storage, 70, 608)
        linear = bind_linear(library, pack_blocks(library, raw, storage, dtype))
        x = torch.randn(131, 608).to(dtype)
        together, alone = (torch.empty(131, 70, dtype=dtype) for _ in range(2))
        linear(x, together)
        for rows in (1, 2, 3, 5, 6, 12, 13, 31):
            alone.fill_(7.0)
            for start in range(0, 131, rows):
                linear(x[start : start + rows], alone[start : start + rows])
            assert torch.equal(alone, together), rows


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("storage", FORMATS)
def test_a_gated_pair_is_its_two_products_and_the_activation(
    library: NativeLibrary, storage: str, dtype: torch.dtype
) -> None:
    gate, up = (random_blocks(storage, 70, 96, seed) for seed in (1, 2))
    x = torch.randn(9, 96).to(dtype)
    out, *halves = (torch.empty(9, 70, dtype=dtype) for _ in range(3))
    bind_gate_up_act(library, pack_gate_up_blocks(library, gate, up, storage, dtype))(x, out)
    for raw, half in zip((gate, up), halves, strict=True):
        bind_linear(library, pack_blocks(library, raw, storage, dtype))(x, half)
    act = torch.nn.functional.silu(halves[0].double()).to(dtype)
    exact = act.double() * halves[1].double()
    close(out, exact, exact.abs(), 2**18 if dtype is torch.bfloat16 else 8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("storage", FORMATS)
def test_rows_of_a_table_are_the_plain_ones(
    library: NativeLibrary, storage: str, dtype: torch.dtype
) -> None:
    raw = random_blocks(storage, 41, 96)
    table = pack_blocks(library, raw, storage, dtype)
    ids = torch.tensor([0, 40, 15, 16, 31, 40])
    out = torch.full((6, 99), 7.0, dtype=dtype)
    embedding_from_blocks(library, table, ids, out[:, :96])
    assert torch.equal(out[:, :96], plain(raw, storage, dtype)[ids])
    assert (out[:, 96:] == 7.0).all()


def test_another_scale_is_another_result(library: NativeLibrary) -> None:
    """The comparisons above can fail."""
    raw = random_blocks("q4_1", 16, 32)
    spoilt = raw.clone()
    spoilt[3, 0] ^= 1
    x = torch.ones(1, 32)
    results = []
    for one in (raw, spoilt):
        out = torch.empty(1, 16)
        bind_linear(library, pack_blocks(library, one, "q4_1", torch.float32))(x, out)
        results.append(out)
    assert (results[0] != results[1]).nonzero().tolist() == [[0, 3]]


def test_what_are_no_whole_blocks_is_refused(library: NativeLibrary) -> None:
    for raw, storage in (
        (torch.zeros(4, 19, dtype=torch.uint8), "q4_1"),
        (torch.zeros(4, 20, dtype=torch.uint8), "q5_1"),
        (torch.zeros(4, 20), "q4_1"),
    ):
        with pytest.raises(UnsupportedError, match="rows of whole blocks in q4_0, q4_1, q8_0"):
            pack_blocks(library, raw, storage, torch.float32)
    with pytest.raises(UnsupportedError, match="two weights alike"):
        pack_gate_up_blocks(
            library,
            torch.zeros(4, 20, dtype=torch.uint8),
            torch.zeros(5, 20, dtype=torch.uint8),
            "q4_1",
            torch.float32,
        )
