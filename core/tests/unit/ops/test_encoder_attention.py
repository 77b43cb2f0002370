from __future__ import annotations

import pytest
import torch

from dougong.ops import EncoderAttention
from dougong.ops.example_values import seeded

HEADS, DIM = 3, 8
LENGTHS = {
    "one text": [7],
    "one token": [1],
    "of one length": [4, 4, 4],
    "of several lengths": [2, 5, 2, 1, 5],
    "one without a token": [3, 0, 2],
}


def attention(scale: float = DIM**-0.5) -> EncoderAttention:
    return EncoderAttention(HEADS, DIM, scale)


def run(op: EncoderAttention, lengths: list[int]) -> tuple[torch.Tensor, ...]:
    starts = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    q, k, v = seeded(3, sum(lengths), HEADS, DIM).unbind()
    return q, k, v, op(q, k, v, starts, starts, max(lengths))


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_each_token_sees_its_whole_text_and_no_other(lengths: list[int]) -> None:
    q, k, v, found = run(attention(), lengths)
    first = 0
    for length in lengths:
        own = slice(first, first + length)
        scores = torch.einsum("qhd,khd->hqk", q[own].double(), k[own].double()) * DIM**-0.5
        expected = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[own].double())
        torch.testing.assert_close(found[own], expected.float(), rtol=1e-5, atol=1e-6)
        first += length


def test_the_scale_is_the_one_that_was_given() -> None:
    *_, v, found = run(attention(scale=0.0), [4])
    torch.testing.assert_close(found, v.mean(0).expand(4, HEADS, DIM))


def test_parts_of_one_product_are_taken_as_they_lie() -> None:
    qkv = seeded(5, 3, HEADS, DIM)
    starts = torch.tensor([0, 2, 5], dtype=torch.int32)
    views = attention()(*qkv.unbind(1), starts, starts, 3)
    copies = attention()(*(part.contiguous() for part in qkv.unbind(1)), starts, starts, 3)
    assert torch.equal(views, copies)


def test_a_step_without_tokens_gives_none() -> None:
    starts = torch.zeros(1, dtype=torch.int32)
    empty = torch.empty(0, HEADS, DIM)
    assert attention()(empty, empty, empty, starts, starts, 0).shape == (0, HEADS, DIM)
