from __future__ import annotations

import torch

from dougong.ops.encoder_layers import AddLayerNorm, EncoderEmbedding


def test_the_norm_is_of_the_sum() -> None:
    op, (x, residual) = AddLayerNorm.example()
    assert isinstance(op, AddLayerNorm)
    expected = torch.nn.functional.layer_norm(
        x + residual, (24,), op.norm.weight, op.norm.bias, op.norm.eps
    )
    torch.testing.assert_close(op(x, residual), expected)
    assert op.kernel_args() == op.norm.kernel_args()


def test_the_norm_inside_is_what_is_bound_to_it() -> None:
    op, arguments = AddLayerNorm.example()
    assert isinstance(op, AddLayerNorm)
    op.norm.bind("acme/zeros", torch.zeros_like)
    assert not op(*arguments).any()


def test_a_tokens_word_type_and_place_are_added() -> None:
    op, (token_ids, positions) = EncoderEmbedding.example()
    assert isinstance(op, EncoderEmbedding)
    found = op(token_ids, positions)
    for row, (token_id, position) in enumerate(
        zip(token_ids.tolist(), positions.tolist(), strict=True)
    ):
        expected = op.words[token_id] + op.types[0] + op.position_table[position + 2]
        torch.testing.assert_close(found[row], expected)
    names = [op.words, op.position_table, op.types, 2]
    assert all(one is other for one, other in zip(op.kernel_args(), names, strict=True))
