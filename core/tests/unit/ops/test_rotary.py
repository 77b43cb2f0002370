"""Rotation against complex multiplication, which is what it means."""

from __future__ import annotations

import torch

from dougong.ops import RotaryEmbedding


def table(num_positions: int, rotary_dim: int) -> torch.Tensor:
    angles = torch.outer(
        torch.arange(num_positions).double(),
        10000.0 ** -(torch.arange(0, rotary_dim, 2).double() / rotary_dim),
    )
    return torch.cat((angles.cos(), angles.sin()), dim=-1).float()


def rotate(x: torch.Tensor, positions: torch.Tensor, is_neox: bool, rotary: int) -> torch.Tensor:
    cos, sin = table(64, rotary).double()[positions].chunk(2, -1)
    turn = torch.complex(cos, sin).unsqueeze(1)
    part = x[..., :rotary].double()
    half = rotary // 2
    pairs = (part[..., :half], part[..., half:]) if is_neox else (part[..., ::2], part[..., 1::2])
    turned = torch.complex(*pairs) * turn
    out = x.double().clone()
    if is_neox:
        out[..., :rotary] = torch.cat((turned.real, turned.imag), -1)
    else:
        out[..., :rotary] = torch.stack((turned.real, turned.imag), -1).flatten(-2)
    return out


def test_each_style_and_partial_rotation_turn_pairs_by_their_angle() -> None:
    torch.manual_seed(0)
    positions = torch.tensor([0, 63, 5])
    for is_neox in (True, False):
        for rotary in (16, 8):
            op = RotaryEmbedding(16, rotary, table(64, rotary), is_neox)
            q, k = torch.randn(3, 4, 16), torch.randn(3, 2, 16)
            turned_q, turned_k = op(positions, q.clone(), k.clone())
            for turned, given in ((turned_q, q), (turned_k, k)):
                expected = rotate(given, positions, is_neox, rotary)
                torch.testing.assert_close(turned.double(), expected, rtol=1e-5, atol=1e-5)
