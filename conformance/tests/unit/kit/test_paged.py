"""Batches over a paged cache."""

from __future__ import annotations

import torch

from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.paged import PADDING, Geometry, PagedBatch, Span

GEOMETRY = Geometry(
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    block_size=4,
    reserved_blocks=2,
    dtype=torch.float32,
    kv_dtype=torch.float32,
)


def batch_of(*spans: Span, padded: int = 0) -> PagedBatch:
    return PagedBatch(Draw("paged"), spans, GEOMETRY, padded=padded)


def test_no_sequence_uses_reserved_or_poisoned_blocks_nor_anothers() -> None:
    batch = batch_of(Span(9), Span(4), Span(1))
    used = [block for blocks in batch.blocks for block in blocks]
    assert len(set(used)) == len(used) == 3 + 1 + 1
    assert min(used) > batch.poison_block >= GEOMETRY.reserved_blocks
    assert max(used) < batch.num_blocks
    assert used != sorted(used)


def test_writes_and_step_fill_every_slot_of_every_sequence_once() -> None:
    batch = batch_of(Span(9, 3), Span(5, 5), Span(6))
    written = torch.cat([one["slots"] for one in batch.writes()])
    stepped = batch.step()["slots"]
    slots = torch.cat((written[written != PADDING], stepped))
    wanted = torch.cat([batch.slots(i, 0, span.length) for i, span in enumerate(batch.spans)])
    assert sorted(slots.tolist()) == sorted(wanted.tolist())
    assert (written == PADDING).any()


def test_shared_blocks_belong_to_the_first_sequence_and_are_written_by_it() -> None:
    batch = batch_of(Span(9), Span(10, shared=2))
    assert batch.blocks[0][:2] == batch.blocks[1][:2]
    assert torch.equal(batch.keys[0][:8], batch.keys[1][:8])
    written = torch.cat([one["slots"] for one in batch.writes()])
    slots = written[written != PADDING].tolist()
    assert len(slots) == len(set(slots))


def test_padding_comes_last_and_has_no_slot() -> None:
    step = batch_of(Span(5), Span(3), padded=3).step()
    assert step["num_reqs"] == 2
    assert step["num_tokens"] == 2
    assert step["cu_seqlens_q"].tolist() == [0, 1, 2, 2, 2]
    assert step["seq_lens"].tolist() == [5, 3, 0, 0]
    assert step["slots"][2:].tolist() == [PADDING] * 3
    assert step["q"][2:].isnan().all()


def test_table_entries_past_a_sequence_point_at_poison() -> None:
    batch = batch_of(Span(9), Span(1))
    table = batch.step()["block_table"]
    assert table[1, 1:].tolist() == [batch.poison_block] * (table.shape[1] - 1)
