"""Into the vocabulary and out of it."""

from __future__ import annotations

import torch

from dougong.ops import Embedding, LMHead


def table(dtype: torch.dtype) -> Embedding:
    torch.manual_seed(0)
    embedding = Embedding(11, 4, dtype)
    embedding.weight.data.normal_()
    return embedding


def test_an_embedding_gathers_rows() -> None:
    embedding = table(torch.float32)
    ids = torch.tensor([10, 0, 0])
    assert torch.equal(embedding(ids), embedding.weight[ids])


def test_a_tied_head_uses_the_embeddings_weight_and_gives_float32() -> None:
    embedding = table(torch.bfloat16)
    head = LMHead(11, 4, torch.bfloat16, embedding)
    assert head.is_tied
    assert embedding.is_tied
    assert embedding.head is head
    rows = embedding(torch.tensor([10, 0]))
    logits = head(rows)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, (rows @ embedding.weight.T).float())


def test_an_untied_head_has_a_weight_of_its_own_and_the_embedding_is_no_part_of_a_tied_one() -> (
    None
):
    assert not LMHead(11, 4, torch.float32).is_tied
    head = LMHead(11, 4, torch.float32, table(torch.float32))
    assert list(head.children()) == []
    embedding = table(torch.float32)
    assert not embedding.is_tied
    LMHead(11, 4, torch.float32, embedding)
    assert list(embedding.children()) == []
