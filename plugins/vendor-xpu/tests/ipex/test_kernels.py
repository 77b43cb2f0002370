"""The provider's kernels through the plugin's functions, against the suite's oracle in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from dougong.ops import RotaryEmbedding
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.oracle.activation import gated
from dougong_conformance.kit.oracle.norm import fused_add_rms_norm, rms_norm
from dougong_conformance.kit.oracle.rotary import rotary

from dougong_xpu import ipex_kernels
from tests.ipex.conftest import DTYPES, error_of
from tests.shown import shows

pytestmark = pytest.mark.lane
EPS = 1e-6


def _norm(draw: Draw) -> float:
    x, weight = draw.normal(7, 192), draw.normal(192)
    return error_of(ipex_kernels.rms_norm(x, weight, EPS), rms_norm(x, weight, EPS))


def _add_and_norm(draw: Draw) -> float:
    x, residual, weight = draw.normal(7, 192), draw.normal(7, 192), draw.normal(192)
    expected, total = fused_add_rms_norm(x, residual.clone(), weight, EPS)
    normed, after = ipex_kernels.add_rms_norm(x, residual, weight, EPS)
    assert torch.equal(after, total)
    assert after is residual
    return error_of(normed, expected)


def _norm_of_the_first_layer(draw: Draw) -> float:
    x, weight = draw.normal(7, 192), draw.normal(192)
    normed, residual = ipex_kernels.add_rms_norm(x, None, weight, EPS)
    assert residual is x
    return error_of(normed, rms_norm(x, weight, EPS))


def _silu(draw: Draw) -> float:
    x = draw.normal(5, 256, scale=3.0)
    return error_of(ipex_kernels.silu_and_mul(x), gated("silu", x))


def _gelu(draw: Draw) -> float:
    x = draw.normal(5, 256, scale=2.0)
    by_name = {"none": "gelu", "tanh": "gelu_pytorch_tanh"}
    return max(
        error_of(ipex_kernels.gelu_and_mul(x, approximate), gated(name, x))
        for approximate, name in by_name.items()
    )


def _rotation(draw: Draw) -> float:
    dim, positions = 64, torch.tensor([0, 9, 3, 31, 4])
    angles = torch.outer(torch.arange(32.0), 10000 ** (-torch.arange(0, dim, 2) / dim))
    # rounded as the library reads it, so that the kernel alone is judged
    table = torch.cat((angles.cos(), angles.sin()), dim=1).to(draw.dtype).float()
    op = RotaryEmbedding(dim, dim, table, num_heads=4, num_kv_heads=2)
    wide = draw.normal(5, 8, dim)
    q, k, _ = wide.split_with_sizes((4, 2, 2), dim=1)
    expected = [rotary(one.clone(), positions, table) for one in (q, k)]
    turned = ipex_kernels.IpexRotaryEmbedding(op)(positions, q, k)
    return max(error_of(one, right) for one, right in zip(turned, expected, strict=True))


KERNELS: dict[str, Callable[[Draw], float]] = {
    "rms_norm": _norm,
    "add_rms_norm": _add_and_norm,
    "add_rms_norm, first layer": _norm_of_the_first_layer,
    "silu_mul": _silu,
    "gelu_mul": _gelu,
    "rotary_embedding": _rotation,
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_agrees_with_the_oracle(kernel: str) -> None:
    what = (
        f"{kernel} of Intel's extension (CPU build) agrees with the oracle in float32, bf16, fp16"
    )
    with shows("beside", what, "ipex") as said:
        for name, dtype in DTYPES.items():
            errors = [KERNELS[kernel](Draw(f"ipex/{kernel}", index, dtype)) for index in range(3)]
            said.details[f"largest error, {name}"] = max(errors)


def test_a_wrong_kernel_is_found() -> None:
    x, weight = Draw("ipex/wrong").normal(7, 192), torch.ones(192)
    with pytest.raises(AssertionError, match="normalised error"):
        error_of(ipex_kernels.rms_norm(x, weight, EPS) * (1 + 1e-4), rms_norm(x, weight, EPS))
