"""The fused slot against complex multiplication in float64, its parts, and `transformers`."""

from __future__ import annotations

import pytest
import torch
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm, apply_rotary_pos_emb

from dougong.ops import CustomOp, QKVNormRope, RMSNorm

HEADS, KV_HEADS, EPS, NUM_POSITIONS = 6, 2, 1e-3, 40


def angles(rotary_dim: int) -> torch.Tensor:
    exponents = torch.arange(0, rotary_dim, 2).double() / rotary_dim
    return torch.arange(NUM_POSITIONS).double()[:, None] * 500.0**-exponents


def made(
    head_dim: int,
    rotary_dim: int,
    *,
    norm_eps: float | None = EPS,
    is_neox: bool = True,
    dtype: torch.dtype = torch.float32,
) -> QKVNormRope:
    torch.manual_seed(0)
    table = torch.cat((angles(rotary_dim).cos(), angles(rotary_dim).sin()), -1).float()
    op = QKVNormRope(HEADS, KV_HEADS, head_dim, rotary_dim, table, dtype, norm_eps, is_neox)
    for parameter in op.parameters():
        parameter.data.normal_()
    return op


def oracle_head(
    x: torch.Tensor, norm: RMSNorm | None, position: int, op: QKVNormRope
) -> torch.Tensor:
    x = x.double()
    if norm is not None:
        x = x / (x.square().sum() / len(x) + EPS).sqrt() * norm.weight.double()
    turns = torch.polar(torch.ones(op.rotary_dim // 2).double(), angles(op.rotary_dim)[position])
    out, half = x.clone(), op.rotary_dim // 2
    for pair, turn in enumerate(turns):
        real, imag = (pair, pair + half) if op.is_neox else (2 * pair, 2 * pair + 1)
        turned = torch.complex(x[real], x[imag]) * turn
        out[real], out[imag] = turned.real, turned.imag
    return out


def check(op: QKVNormRope, qkv: torch.Tensor, positions: torch.Tensor, tolerance: float) -> None:
    width, given = op.head_dim, qkv.clone()
    found = op(qkv, positions)
    assert [tuple(part.shape) for part in found] == [
        (len(qkv), heads, width) for heads in (HEADS, KV_HEADS, KV_HEADS)
    ]
    starts = (0, HEADS, HEADS + KV_HEADS)
    for part, start, norm in zip(found, starts, (op.q_norm, op.k_norm, None), strict=True):
        assert part.dtype == qkv.dtype
        for token, position in enumerate(positions.tolist()):
            for head in range(part.shape[1]):
                x = given[token, (start + head) * width : (start + head + 1) * width]
                is_value = start == starts[2]
                expected = x.double() if is_value else oracle_head(x, norm, position, op)
                torch.testing.assert_close(
                    part[token, head].double(), expected, rtol=tolerance, atol=tolerance
                )


@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("norm_eps", [EPS, None])
@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(16, 16), (10, 6), (2, 2)])
def test_heads_are_split_normalised_and_turned(
    head_dim: int, rotary_dim: int, norm_eps: float | None, is_neox: bool
) -> None:
    op = made(head_dim, rotary_dim, norm_eps=norm_eps, is_neox=is_neox)
    qkv = torch.randn(4, (HEADS + 2 * KV_HEADS) * head_dim)
    check(op, qkv, torch.tensor([39, 0, 7, 7]), 1e-5)


def test_in_bfloat16_each_part_rounds_once() -> None:
    op = made(16, 16, dtype=torch.bfloat16)
    qkv = torch.randn(5, (HEADS + 2 * KV_HEADS) * 16).bfloat16()
    check(op, qkv, torch.tensor([0, 1, 2, 38, 39]), 2.5e-2)


def test_no_tokens_give_no_rows() -> None:
    op = made(8, 8)
    found = op(torch.empty(0, 80), torch.empty(0, dtype=torch.int64))
    assert [len(part) for part in found] == [0, 0, 0]


def test_strides_make_no_difference_and_nan_spoils_its_own_head() -> None:
    op, positions = made(8, 8), torch.tensor([3, 4, 5])
    wide = torch.randn(3, 100)
    wide[1, 9] = torch.nan  # head 1 of q
    q, k, v = op(wide[:, :80], positions)
    for part, other in zip((q, k, v), op(wide[:, :80].contiguous(), positions), strict=True):
        torch.testing.assert_close(part, other, equal_nan=True, rtol=0, atol=0)
    spoilt = q.isnan().any(-1)
    assert spoilt.nonzero().tolist() == [[1, 1]]
    assert not k.isnan().any()
    assert not v.isnan().any()


def test_its_parts_are_ops_under_its_own_path_and_the_table_is_shared() -> None:
    table = torch.cat((angles(8).cos(), angles(8).sin()), -1).float()
    slots = torch.nn.ModuleList(
        QKVNormRope(HEADS, KV_HEADS, 8, 8, table, torch.float32, eps) for eps in (EPS, None)
    )
    paths = {
        path: module.key for path, module in slots.named_modules() if isinstance(module, CustomOp)
    }
    assert paths == {
        "0": "qkv_norm_rope",
        "0.q_norm": "rms_norm",
        "0.k_norm": "rms_norm",
        "0.rotary": "rotary_embedding",
        "1": "qkv_norm_rope",
        "1.rotary": "rotary_embedding",
    }
    assert {buffer.data_ptr() for buffer in slots.buffers()} == {table.data_ptr()}


def test_what_a_part_is_bound_to_is_what_runs() -> None:
    op = made(8, 8)
    assert op.q_norm is not None
    op.q_norm.bind("acme/zero", torch.zeros_like)
    q, k, _ = op(torch.randn(2, 80), torch.tensor([0, 1]))
    assert not q.any()
    assert k.any()


def test_a_kernel_gets_weights_table_and_sizes() -> None:
    op = made(8, 8)
    assert dict(zip(op.kernel_arg_names, op.kernel_args(), strict=True))["norm_eps"] == EPS
    plain = made(8, 8, norm_eps=None)
    assert plain.kernel_args()[:3] == (None, None, None)


def test_the_parts_of_qwen3_in_transformers_agree() -> None:
    op = made(16, 16)
    qkv, positions = torch.randn(4, (HEADS + 2 * KV_HEADS) * 16), torch.tensor([1, 2, 30, 4])
    q, k, v = torch.split(qkv.view(4, -1, 16), [HEADS, KV_HEADS, KV_HEADS], dim=1)
    normed = []
    for part, own in ((q, op.q_norm), (k, op.k_norm)):
        norm = Qwen3RMSNorm(16, EPS)
        assert own is not None
        norm.weight.data.copy_(own.weight)
        normed.append(norm(part).detach())
    turns = angles(16)[positions].repeat(1, 2)
    cos, sin = turns.cos().float(), turns.sin().float()
    expected = (*apply_rotary_pos_emb(*normed, cos, sin, unsqueeze_dim=1), v)
    for found, wanted in zip(op(qkv.clone(), positions), expected, strict=True):
        torch.testing.assert_close(found, wanted)
