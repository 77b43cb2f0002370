"""Formats of few bits against their definition in float64, and against the gguf package."""

from __future__ import annotations

import itertools

import gguf
import numpy as np
import pytest
import torch

from dougong.contracts import ConfigError
from dougong.ops import QUANT_FORMATS, Dequantize, Quantize

INT8 = {"int8_token": None, "int8_group32": 32}
FP8 = {"fp8_e4m3_token": None, "fp8_e4m3_group128": 128}
DYNAMIC = {**INT8, **FP8, "int4_group32": 32}
E4M3 = sorted(
    {
        sign * (1 + mantissa / 8) * 2.0**exponent
        for sign, mantissa, exponent in itertools.product((-1, 1), range(8), range(-6, 9))
        if (mantissa, exponent) != (7, 8)  # that one is NaN
    }
    | {sign * mantissa * 2.0**-9 for sign in (-1, 1) for mantissa in range(8)}
)
"""Every number float8 e4m3 has."""


def nearest_e4m3(value: float) -> float:
    """The nearest one; of two the one whose last bit is 0."""
    above = next((one for one in E4M3 if one >= value), E4M3[-1])
    below = next((one for one in reversed(E4M3) if one <= value), E4M3[0])
    if value - below != above - value:
        return below if value - below < above - value else above
    return min(above, below, key=lambda one: int(np.float32(one).view(np.uint32)) >> 20 & 1)


def rows(hidden_size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Rows of very unequal size, one of zeros."""
    torch.manual_seed(0)
    x = torch.randn(6, hidden_size) * torch.tensor([1e-4, 1.0, 37.0, 0.0, 5e3, 1e-30])[:, None]
    return x.to(dtype)


def round_trip(
    format: str, x: torch.Tensor, dtype: torch.dtype = torch.float32, scale: float = 0.0
) -> torch.Tensor:
    op = Quantize(x.shape[-1], format)
    if op.scale is not None:
        op.scale.data.fill_(scale)
    back: torch.Tensor = Dequantize(x.shape[-1], format, dtype)(*op(x))
    return back


@pytest.mark.parametrize("format", INT8 | FP8)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_group_is_stored_in_units_of_its_own_scale(format: str, dtype: torch.dtype) -> None:
    size = DYNAMIC[format]
    x = rows(77 if size is None else 2 * size, dtype)
    values, scale, minimum = Quantize(x.shape[-1], format)(x)
    assert minimum is None
    assert values.dtype == (torch.int8 if format in INT8 else torch.float8_e4m3fn)
    assert values.shape == x.shape
    assert (scale.dtype, scale.shape) == (torch.float32, (6, x.shape[-1] // (size or 77)))
    groups = x.double().numpy().reshape(*scale.shape, -1)
    limit = 127 if format in INT8 else 448
    expected_scale = np.abs(groups).max(-1) / limit
    torch.testing.assert_close(scale.double(), torch.from_numpy(expected_scale), atol=0, rtol=1e-6)
    found = values.float().double().numpy().reshape(groups.shape)
    units = groups / np.where(scale == 0, 1, scale.double())[..., None]
    nearest = np.round(units) if format in INT8 else np.vectorize(nearest_e4m3)(units)
    # Where the quotient, taken in float32, lies within its rounding of a tie, either is right.
    differs = found != nearest
    assert differs.mean() < 0.005
    assert (np.abs(found - units)[differs] <= np.abs(nearest - units)[differs] * (1 + 1e-4)).all()
    assert np.abs(found[:, 0]).max() == limit  # the scale uses the whole range


@pytest.mark.parametrize("format", INT8)
def test_integers_round_half_to_even(format: str) -> None:
    x = torch.zeros(1, 32)
    x[0, :9] = torch.tensor([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -127.0])
    values, scale, _ = Quantize(32, format)(x)
    assert scale.item() == 1
    assert values[0, :9].tolist() == [127, 0, 2, 2, 0, -2, -2, 126, -127]


def test_float8_rounds_half_to_even_and_keeps_its_smallest_numbers() -> None:
    x = torch.tensor([[448.0, 17.0, 19.0, -17.0, 2.0**-9, 2.0**-10, 3 * 2.0**-10, -21.0]])
    values, scale, _ = Quantize(8, "fp8_e4m3_token")(x)
    assert scale.item() == 1
    expected = [448.0, 16.0, 20.0, -16.0, 2.0**-9, 0.0, 2.0**-8, -20.0]
    assert values.float()[0].tolist() == expected


def test_every_float8_number_is_kept() -> None:
    x = torch.tensor([E4M3])
    values, _, _ = Quantize(len(E4M3), "fp8_e4m3_token")(x)
    assert torch.equal(values.float(), x)


def test_a_static_scale_comes_with_the_weights_and_saturates_at_the_formats_own_largest() -> None:
    x = torch.tensor([[1e3, -1e9, torch.inf, -torch.inf, 224.0, 225.0, 0.25, torch.nan]])
    op = Quantize(8, "fp8_e4m3_static")
    assert [name for name, _ in op.named_parameters()] == ["scale"]
    assert op.scale is not None
    op.scale.data.fill_(0.5)
    values, scale, minimum = op(x)
    assert minimum is None
    assert (scale.tolist(), scale.dtype) == ([0.5], torch.float32)
    expected = [448.0, -448.0, 448.0, -448.0, 448.0, 448.0, 0.5]
    assert values.float()[0, :7].tolist() == expected
    assert values.float()[0, 7].isnan()
    back = Dequantize(8, "fp8_e4m3_static", torch.float32)(values, scale, minimum)
    assert back[0, :7].tolist() == [value / 2 for value in expected]


@pytest.mark.parametrize("format", DYNAMIC)
def test_a_row_of_zeros_gives_zeros(format: str) -> None:
    values, scale, minimum = Quantize(128, format)(torch.zeros(2, 128))
    assert not values.float().any()
    assert not scale.any()
    assert minimum is None or not minimum.any()
    assert torch.equal(round_trip(format, torch.zeros(2, 128)), torch.zeros(2, 128))


@pytest.mark.parametrize("format", DYNAMIC)
def test_what_comes_back_is_within_half_a_unit_and_in_the_dtype_asked_for(format: str) -> None:
    x = rows(256)[:5]
    _, scale, _ = Quantize(256, format)(x)
    unit = scale.double().repeat_interleave(256 // scale.shape[1], dim=1)
    if format in FP8:  # three bits of a number's own size, or half the smallest number
        allowed = torch.maximum(x.double().abs() * 2.0**-4, unit * 2.0**-10)
    else:
        allowed = unit / 2
    allowed = allowed * 1.001 + (
        x.abs().amax(1, keepdim=True) * 2.0**-10 if "int4" in format else 0
    )
    back = round_trip(format, x)
    assert ((back.double() - x.double()).abs() <= allowed).all()
    assert torch.equal(round_trip(format, x, torch.bfloat16), back.bfloat16())


@pytest.mark.parametrize("format", DYNAMIC)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_never_comes_back_as_a_number(format: str, bad: float) -> None:
    x = rows(256)
    expected = round_trip(format, x)
    x[1, 130] = bad
    back = round_trip(format, x)
    size = DYNAMIC[format] or 256
    spoilt = torch.zeros(x.shape, dtype=torch.bool)
    spoilt[1, 130 // size * size : 130 // size * size + size] = True
    assert torch.equal(~back.isfinite(), spoilt)
    assert torch.equal(back[~spoilt], expected[~spoilt])


@pytest.mark.parametrize("format", DYNAMIC)
@pytest.mark.parametrize("size", [3e38, 1e-38, 1e-45])
def test_very_large_and_very_small_rows_do_not_become_something_else(
    format: str, size: float
) -> None:
    x = torch.linspace(-1, 1, 128)[None].double() * size
    back = round_trip(format, x.float()).double()
    if format != "int4_group32":
        assert (back - x).abs().max() <= max(size / 14, 2e-43)
    elif size < 1:
        assert not back.any()  # below the smallest float16
    else:
        assert not back.isfinite().any()  # beyond the largest


def test_a_scale_that_rounds_down_makes_no_integer_below_the_smallest() -> None:
    unit = 2.0**-149  # float32's smallest number, and the scale here: 143 units divided by 127
    values, scale, _ = Quantize(3, "int8_token")(
        torch.tensor([[-143, 143, -1]]).double().mul(unit).float()
    )
    assert scale.item() == unit
    assert values.tolist() == [[-127, 127, -1]]


def packed(elements: list[int]) -> list[int]:
    return [low | high << 4 for low, high in zip(elements[:16], elements[16:], strict=True)]


def test_four_bit_values_lie_as_in_gguf_with_a_scale_and_a_minimum_per_32() -> None:
    torch.manual_seed(0)
    codes = torch.stack([torch.randperm(32) % 16 for _ in range(6)])
    codes[:, :2] = torch.tensor([0, 15])
    numbers = torch.tensor(
        [[2.0, -7.0], [0.5, 3.0], [1.0, 0.0], [4.0, 1.0], [0.25, -8.0], [8.0, 0.5]]
    )
    x = (codes * numbers[:, :1] + numbers[:, 1:]).view(3, 64)
    values, scale, minimum = Quantize(64, "int4_group32")(x)
    assert (values.dtype, scale.dtype, minimum.dtype) == (torch.uint8, torch.float16, torch.float16)
    assert scale.tolist() == numbers[:, 0].view(3, 2).tolist()
    assert minimum.tolist() == numbers[:, 1].view(3, 2).tolist()
    assert values.view(6, 16).tolist() == [packed(group) for group in codes.tolist()]
    back = Dequantize(64, "int4_group32", torch.float32)(values, scale, minimum)
    assert torch.equal(back, x)


def test_four_bit_values_round_half_to_even() -> None:
    x = torch.zeros(1, 32)
    x[0, :6] = torch.tensor([-4.0, 11.0, -3.5, -2.5, -1.5, -0.5])
    values, scale, minimum = Quantize(32, "int4_group32")(x)
    assert (scale.item(), minimum.item()) == (1, -4)
    assert (values[0, :6] & 15).tolist() == [0, 15, 0, 2, 2, 4]


def test_four_bit_values_are_taken_from_the_scale_and_minimum_as_stored() -> None:
    # float16 stores 1000.3 as 1000.5, a whole value and more above the smallest element
    x = 1000.3 + torch.arange(32)[None].double() % 16 * 0.203
    values, scale, minimum = Quantize(32, "int4_group32")(x.float())
    assert minimum.item() == 1000.5
    codes = ((x - minimum.double()) / scale.double()).round().clamp(0, 15)
    assert codes[0, :3].tolist() == [0, 0, 1]
    assert values[0].tolist() == packed([int(code) for code in codes[0]])


def test_a_group_of_one_number_is_its_minimum() -> None:
    x = torch.cat((torch.full((1, 32), 5001.0), torch.full((1, 32), -0.75)), 1)
    _, scale, minimum = Quantize(64, "int4_group32")(x)
    assert (scale.tolist(), minimum.tolist()) == ([[0.0, 0.0]], [[5000.0, -0.75]])
    assert round_trip("int4_group32", x)[0, ::32].tolist() == [5000.0, -0.75]


def test_blocks_of_a_gguf_file_are_dequantized_to_the_bit() -> None:
    x = rows(96).numpy()[:5]
    q4_1 = gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q4_1).reshape(5, 3, 20)
    parts = torch.from_numpy(q4_1[..., :4].copy()).view(torch.float16)
    values = torch.from_numpy(q4_1[..., 4:].copy()).flatten(-2)
    found = Dequantize(96, "int4_group32", torch.float32)(values, parts[..., 0], parts[..., 1])
    expected = gguf.quants.dequantize(q4_1.reshape(5, -1), gguf.GGMLQuantizationType.Q4_1)
    assert np.array_equal(found.numpy(), expected)
    q8_0 = gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q8_0).reshape(5, 3, 34)
    scale = torch.from_numpy(q8_0[..., :2].copy()).view(torch.float16)[..., 0].float()
    values = torch.from_numpy(q8_0[..., 2:].copy()).view(torch.int8).flatten(-2)
    found = Dequantize(96, "int8_group32", torch.float32)(values, scale, None)
    expected = gguf.quants.dequantize(q8_0.reshape(5, -1), gguf.GGMLQuantizationType.Q8_0)
    assert np.array_equal(found.numpy(), expected)


@pytest.mark.parametrize("format", QUANT_FORMATS)
def test_shapes_strides_and_no_rows(format: str) -> None:
    torch.manual_seed(0)
    wide = torch.randn(2, 3, 300)
    part = wide[..., 20:276]
    assert torch.equal(
        round_trip(format, part, scale=0.1), round_trip(format, part.clone(), scale=0.1)
    )
    strided = torch.randn(256, 4).T
    assert torch.equal(
        round_trip(format, strided, scale=0.1), round_trip(format, strided.contiguous(), scale=0.1)
    )
    assert round_trip(format, torch.empty(0, 128), scale=0.1).shape == (0, 128)
    assert round_trip(format, torch.randn(128), scale=0.1).shape == (128,)


def test_an_unknown_format_and_rows_of_no_whole_groups_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"'int3' is not known; known: int8_token, .*int4_group32"
    ):
        Quantize(64, "int3")
    with pytest.raises(ConfigError, match=r"rows of 100 elements .*groups of 32.*'int4_group32'"):
        Dequantize(100, "int4_group32", torch.float32)
