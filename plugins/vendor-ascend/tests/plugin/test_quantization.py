"""Eight-bit linear layers by the vendor's ops."""

from __future__ import annotations

import pytest
import torch
from dougong.contracts import UnsupportedError
from torch import nn

from dougong_ascend.quantization import W8A8DynamicLinear
from tests.references.refusals import VendorLimitError

pytestmark = pytest.mark.usefixtures("npu_ops")
IN, OUT = 48, 32


def loaded(method: W8A8DynamicLinear, scale: torch.Tensor | None = None) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    layer = nn.Module()
    method.create_weights(layer, IN, OUT, torch.bfloat16)
    given = {
        "weight": torch.randint(-127, 128, (OUT, IN), generator=generator, dtype=torch.int8),
        "weight_scale": torch.rand(OUT, 1, generator=generator) * 0.01 if scale is None else scale,
    }
    for name, tensor in given.items():
        layer.get_parameter(name).data.copy_(method.transform_weight(layer, name, tensor))
    return layer


@pytest.mark.parametrize("fractal", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_it_multiplies_by_the_weight_that_is_meant(
    fractal: bool, has_bias: bool, dtype: torch.dtype
) -> None:
    method = W8A8DynamicLinear(fractal=fractal)
    layer = loaded(method)
    wide = (
        layer.get_parameter("weight").double()
        * layer.get_parameter("weight_scale").double()[:, None]
    )
    method.post_load(layer)
    x = torch.randn(7, IN, generator=torch.Generator().manual_seed(1)).to(dtype)
    bias = torch.linspace(-1, 1, OUT, dtype=dtype) if has_bias else None
    found = method.apply(layer, x, bias)
    expected = x.double() @ wide.t() + (0 if bias is None else bias.double())
    assert found.dtype == dtype
    assert float((found.double() - expected).abs().max()) < 0.02 * float(expected.abs().max())


def test_a_second_post_load_changes_nothing() -> None:
    method, x = W8A8DynamicLinear(), torch.ones(2, IN, dtype=torch.bfloat16)
    layer = loaded(method)
    method.post_load(layer)
    before = method.apply(layer, x, None)
    method.post_load(layer)
    assert torch.equal(method.apply(layer, x, None), before)
    assert layer.get_parameter("weight").numel() == 0


def test_a_scale_in_float16_is_refused_while_loading() -> None:
    with pytest.raises(UnsupportedError, match=r"161002.*convert the checkpoint's scales"):
        loaded(W8A8DynamicLinear(), torch.ones(OUT, dtype=torch.float16))


def test_such_a_scale_would_otherwise_fail_in_the_first_step() -> None:
    method = W8A8DynamicLinear()
    layer = loaded(method)
    method.post_load(layer)
    layer.get_parameter("weight_scale").data = torch.ones(OUT, dtype=torch.float16)
    with pytest.raises(VendorLimitError, match="161002"):
        method.apply(layer, torch.ones(2, IN, dtype=torch.bfloat16), None)


def test_sizes_and_dtypes_that_the_op_does_not_take_are_refused() -> None:
    method = W8A8DynamicLinear()
    with pytest.raises(UnsupportedError, match="at most 65535"):
        method.create_weights(nn.Module(), 65536, 8, torch.bfloat16)
    with pytest.raises(UnsupportedError, match=r"not torch\.float32"):
        method.create_weights(nn.Module(), 8, 8, torch.float32)
