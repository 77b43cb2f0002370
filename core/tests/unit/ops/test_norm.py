"""The two norms against a float64 oracle."""

from __future__ import annotations

import pytest
import torch

from dougong.ops import FusedAddRMSNorm, RMSNorm


def oracle(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.double()
    return wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


@pytest.mark.parametrize("shape", [(3, 33), (2, 4, 16)])
def test_rms_norm_normalises_the_last_axis(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    op = RMSNorm(shape[-1], 1e-5, torch.float32)
    op.weight.data.normal_()
    x = torch.randn(shape)
    torch.testing.assert_close(op(x).double(), oracle(x, op.weight, 1e-5), rtol=1e-5, atol=1e-6)


def test_the_fused_norm_returns_the_sum_and_normalises_it() -> None:
    torch.manual_seed(0)
    op = FusedAddRMSNorm(17, 1e-6, torch.float32)
    op.weight.data.normal_()
    x, residual = torch.randn(5, 17), torch.randn(5, 17)
    total = x + residual
    normed, new_residual = op(x.clone(), residual.clone())
    torch.testing.assert_close(new_residual, total)
    torch.testing.assert_close(
        normed.double(), oracle(total, op.weight, 1e-6), rtol=1e-5, atol=1e-6
    )


def test_without_a_residual_the_sum_is_the_input_alone() -> None:
    op = FusedAddRMSNorm(8, 1e-6, torch.float32)
    op.weight.data.fill_(1.0)
    x = torch.arange(16.0).view(2, 8)
    normed, residual = op(x.clone(), None)
    torch.testing.assert_close(residual, x)
    torch.testing.assert_close(normed, op(x.clone(), torch.zeros(2, 8))[0])
