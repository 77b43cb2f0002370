"""Weights of 8 bits, multiplied as they are stored."""

from __future__ import annotations

import pytest
import torch
from dougong_conformance.ladder.stand_in import StandIn
from torch import nn

from dougong_xpu.platform import XpuPlatform
from dougong_xpu.quantization import Fp8Linear

IN, OUT = 32, 16


@pytest.fixture
def layer() -> nn.Module:
    made = nn.Module()
    Fp8Linear().create_weights(made, IN, OUT, torch.bfloat16)
    made.get_parameter("weight").data = (
        torch.linspace(-2, 2, OUT * IN).view(OUT, IN).to(torch.float8_e4m3fn)
    )
    return made


def product(layer: nn.Module, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    weight = layer.get_parameter("weight").float() * layer.get_parameter("weight_scale")[:, None]
    wide = x.float() @ weight.t()
    return (wide if bias is None else wide + bias.float()).to(x.dtype)


@pytest.mark.parametrize("scales", [torch.tensor(0.5), torch.linspace(0.1, 1.6, OUT).view(-1, 1)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_it_is_a_product_with_the_scaled_weight(
    layer: nn.Module, scales: torch.Tensor, has_bias: bool, library: StandIn
) -> None:
    method = Fp8Linear()
    layer.get_parameter("weight_scale").data.copy_(
        method.transform_weight(layer, "weight_scale", scales)
    )
    method.post_load(layer)
    x = torch.linspace(-1, 1, 3 * IN).view(3, IN).bfloat16()
    bias = torch.linspace(-1, 1, OUT).bfloat16() if has_bias else None
    torch.testing.assert_close(method.apply(layer, x, bias), product(layer, x, bias))
    assert library.calls["_xpu_C::fp8_gemm_w8a16"] == 1


def test_the_weight_is_not_copied_to_be_turned(layer: nn.Module) -> None:
    weight = layer.get_parameter("weight")
    assert weight.t().data_ptr() == weight.data_ptr()
    assert Fp8Linear().transform_weight(layer, "weight", weight) is weight


def test_families_state_the_format_by_this_kernel_or_not_at_all() -> None:
    platform = XpuPlatform()
    stated = {one: platform.claims(one).quantization for one in platform.families()}
    assert {family for family, formats in stated.items() if formats} == {"pvc", "bmg"}
    for formats in stated.values():
        assert all(one.kernel == "xpu/fp8_gemm_w8a16" and one.is_native for one in formats)
