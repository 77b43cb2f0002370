from __future__ import annotations

from typing import Any

import pytest
import torch

from dougong.contracts import UnsupportedError
from dougong.cpu.native import (
    NativeLibrary,
    argmax_rows,
    bind_add_rms_norm,
    bind_rms_norm,
    embedding,
    pack_linear,
)
from dougong.cpu.native.rows import exp

DTYPES = [torch.float32, torch.bfloat16]


def norm_of(x: torch.Tensor, weight: torch.Tensor, eps: float, *, offset: bool) -> torch.Tensor:
    wide = x.double()
    wide = wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt()
    if offset:
        return wide * (1 + weight.double())
    return wide.to(x.dtype).double() * weight.double()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("hidden", [1, 17, 576])
def test_norms_equal_the_float64_norm(
    library: NativeLibrary, hidden: int, offset: bool, dtype: torch.dtype
) -> None:
    weight = torch.randn(hidden).to(dtype)
    options: dict[str, Any] = {
        "hidden_size": hidden,
        "dtype": dtype,
        "eps": 1e-5,
        "weight_offset": offset,
    }
    norm = bind_rms_norm(library, weight, **options)
    add_norm = bind_add_rms_norm(library, weight, **options)
    tolerance: dict[str, Any] = {"rtol": 2**-7 if dtype == torch.bfloat16 else 1e-6, "atol": 1e-6}
    for m in (1, 5, 80):
        x, residual = torch.randn(2, m, hidden).to(dtype)
        out = torch.empty(m, hidden, dtype=dtype)
        norm(x, out)
        want = norm_of(x, weight, 1e-5, offset=offset)
        torch.testing.assert_close(out.double(), want, **tolerance)
        total = residual + x
        add_norm(x, residual, out)
        assert torch.equal(residual, total)
        want = norm_of(total, weight, 1e-5, offset=offset)
        torch.testing.assert_close(out.double(), want, **tolerance)


def test_norm_rows_do_not_depend_on_the_batch_and_may_be_in_place(library: NativeLibrary) -> None:
    norm = bind_rms_norm(
        library, torch.randn(576).bfloat16(), hidden_size=576, dtype=torch.bfloat16, eps=1e-5
    )
    x = torch.randn(100, 576).bfloat16()
    together, alone = torch.empty(2, 100, 576, dtype=torch.bfloat16)
    norm(x, together)
    for row in range(100):
        norm(x[row : row + 1], alone[row : row + 1])
    assert torch.equal(together, alone)
    norm(x, x)
    assert torch.equal(x, together)


def test_a_weight_of_another_dtype_is_refused(library: NativeLibrary) -> None:
    with pytest.raises(UnsupportedError, match="bfloat16"):
        bind_rms_norm(library, torch.ones(8), hidden_size=8, dtype=torch.bfloat16, eps=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [1, 17, 64])
def test_embedding_rows_are_the_tables_rows_in_both_layouts(
    library: NativeLibrary, width: int, dtype: torch.dtype
) -> None:
    table = torch.randn(37, width).to(dtype)
    ids = torch.tensor([0, 36, 15, 16, 16])
    for source in (table, pack_linear(library, table)):
        out = torch.empty(5, width, dtype=dtype)
        embedding(library, source, ids, out)
        assert torch.equal(out, table[ids])


@pytest.mark.parametrize("width", [1, 5, 33, 5000])
def test_argmax_is_the_first_of_the_largest(library: NativeLibrary, width: int) -> None:
    logits = torch.randint(-3, 3, (70, width)).float()
    logits[3] = -torch.inf
    wide = torch.cat([logits, torch.full((70, 2), 9.0)], dim=1)
    out = torch.empty(70, dtype=torch.int64)
    argmax_rows(library, wide[:, :width], out)
    firsts = [row.index(max(row)) for row in logits.tolist()]
    assert out.tolist() == firsts


def test_argmax_of_a_row_with_nan_is_its_first_nan(library: NativeLibrary) -> None:
    logits = torch.randn(2, 100)
    logits[0, [70, 40]] = torch.nan
    out = torch.empty(2, dtype=torch.int64)
    argmax_rows(library, logits, out)
    assert out.tolist() == [40, int(logits[1].argmax())]


def test_exp_is_exact_where_it_must_be_and_close_everywhere(library: NativeLibrary) -> None:
    x = torch.linspace(-87.3, 88.7, 300_001)
    out = torch.empty_like(x)
    exp(library, x, out)
    want = x.double().exp()
    assert ((out.double() - want) / want).abs().max() < 2e-7
    edges = torch.tensor([0.0, -torch.inf, -100.0, torch.nan])
    out = torch.empty(4)
    exp(library, edges, out)
    assert out[:3].tolist() == [1.0, 0.0, 0.0]
    assert out[3].isnan()
