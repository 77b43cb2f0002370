from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from dougong.contracts import UnsupportedError
from dougong.cpu.native import (
    NativeLibrary,
    bind_gate_up_act,
    bind_linear,
    pack_gate_up,
    pack_linear,
)

DTYPES = [torch.float32, torch.bfloat16]
SIZES = [(1, 1), (17, 33), (16, 16), (576, 192), (2049, 40), (4097, 17)]
ROWS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 64, 131]


def close(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype, k: int) -> None:
    # One rounding to dtype, and k float32 additions of terms of unit size.
    tolerance = (2**-8 if dtype == torch.bfloat16 else 2**-23) * want.abs() + k * 2**-22
    assert ((got.double() - want).abs() <= tolerance).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("k", "n"), SIZES)
def test_linear_equals_the_float64_product(
    library: NativeLibrary, k: int, n: int, dtype: torch.dtype
) -> None:
    weight = torch.randn(n, k).to(dtype)
    bias = torch.randn(n)
    packed = pack_linear(library, weight)
    for bound_bias in (None, bias):
        for out_dtype in DTYPES:
            linear = bind_linear(library, packed, bias=bound_bias, out_dtype=out_dtype)
            for m in (1, 7, 50):
                x = torch.randn(m, k).to(dtype)
                out = torch.full((m, n + 3), 7.0, dtype=out_dtype)
                linear(x, out[:, :n])
                want = x.double() @ weight.double().T
                want = want if bound_bias is None else want + bias.double()
                close(out[:, :n], want, out_dtype, k)
                assert (out[:, n:] == 7.0).all()  # nothing beside the output is written


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_is_the_same_bits_alone_and_in_any_batch(
    library: NativeLibrary, dtype: torch.dtype
) -> None:
    for k, n in [(17, 33), (576, 192), (2053, 70)]:
        linear = bind_linear(library, pack_linear(library, torch.randn(n, k).to(dtype)))
        x = torch.randn(max(ROWS), k).to(dtype)
        alone = torch.empty(max(ROWS), n, dtype=dtype)
        for row in range(max(ROWS)):
            linear(x[row : row + 1], alone[row : row + 1])
        for m in ROWS:
            together = torch.empty(m, n, dtype=dtype)
            linear(x[-m:], together)
            assert torch.equal(together, alone[-m:])


def test_rows_and_outputs_may_be_slices_of_wider_tensors(library: NativeLibrary) -> None:
    weight = torch.randn(48, 32).bfloat16()
    linear = bind_linear(library, pack_linear(library, weight))
    wide = torch.randn(5, 100).bfloat16()
    out = torch.zeros(5, 60, dtype=torch.bfloat16)
    whole = torch.empty(5, 48, dtype=torch.bfloat16)
    linear(wide[:, 7:39], out[:, 3:51])
    linear(wide[:, 7:39].contiguous(), whole)
    assert torch.equal(out[:, 3:51], whole)
    assert not out[:, :3].any()
    assert not out[:, 51:].any()


def test_what_lies_behind_a_row_of_odd_length_is_not_read(library: NativeLibrary) -> None:
    linear = bind_linear(library, pack_linear(library, torch.randn(16, 17).bfloat16()))
    x = torch.full((3, 18), float("nan"), dtype=torch.bfloat16)
    x[:, :17] = 1
    out = torch.empty(3, 16, dtype=torch.bfloat16)
    linear(x[:, :17], out)
    assert out.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gate_up_act_equals_the_separate_layers(
    library: NativeLibrary, dtype: torch.dtype, activation: str
) -> None:
    act = F.silu if activation == "silu" else lambda v: F.gelu(v, approximate="tanh")
    for k, n in [(64, 33), (96, 160)]:
        gate, up = (torch.randn(2, n, k) / 8).to(dtype)
        gate_bias, up_bias = torch.randn(2, n)
        packed = pack_gate_up(library, gate, up)
        fused = bind_gate_up_act(
            library, packed, activation=activation, gate_bias=gate_bias, up_bias=up_bias
        )
        parts = [
            bind_linear(library, pack_linear(library, w), bias=b)
            for w, b in ((gate, gate_bias), (up, up_bias))
        ]
        for m in (1, 6, 64):
            x = torch.randn(m, k).to(dtype)
            out, gated, upped = torch.empty(3, m, n, dtype=dtype)
            fused(x, out)
            parts[0](x, gated)
            parts[1](x, upped)
            torch.testing.assert_close(out, act(gated) * upped, rtol=2**-7, atol=1e-6)


def test_gate_up_rows_do_not_depend_on_the_batch(library: NativeLibrary) -> None:
    packed = pack_gate_up(library, *torch.randn(2, 80, 64).bfloat16())
    fused = bind_gate_up_act(library, packed)
    x = torch.randn(64, 64).bfloat16()
    together, alone = torch.empty(2, 64, 80, dtype=torch.bfloat16)
    fused(x, together)
    for row in range(64):
        fused(x[row : row + 1], alone[row : row + 1])
    assert torch.equal(together, alone)


def test_what_is_not_taken_is_refused_while_binding(library: NativeLibrary) -> None:
    with pytest.raises(UnsupportedError, match="float16"):
        pack_linear(library, torch.zeros(4, 4, dtype=torch.float16))
    with pytest.raises(UnsupportedError, match="alike"):
        pack_gate_up(library, torch.zeros(4, 4), torch.zeros(5, 4))
    pair = pack_gate_up(library, torch.zeros(4, 4), torch.zeros(4, 4))
    with pytest.raises(UnsupportedError, match="bind_gate_up_act"):
        bind_linear(library, pair)
    with pytest.raises(UnsupportedError, match="relu"):
        bind_gate_up_act(library, pair, activation="relu")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "k"), [(33, 17), (5003, 300), (16 * 900, 600)])
def test_packing_may_consume_its_source_and_gives_the_same_layout(
    library: NativeLibrary, dtype: torch.dtype, n: int, k: int
) -> None:
    both = torch.randn(2 * n, k).to(dtype)
    gate, up = both[:n], both[n:]
    kept, kept_pair = pack_linear(library, both), pack_gate_up(library, gate, up)
    assert torch.equal(pack_linear(library, both.clone(), consume=True).data, kept.data)
    copy = both.clone()
    consumed = pack_gate_up(library, copy[:n], copy[n:], consume=True)
    assert torch.equal(consumed.data, kept_pair.data)
