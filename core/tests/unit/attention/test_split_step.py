"""A step as two: nothing lost, nothing read from the device."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dougong.attention.split_step import split_step
from tests.support.paged import PagedCase


@pytest.mark.parametrize(
    ("query_lens", "is_decode"),
    [((1, 1, 1), True), ((2, 3), False), ((4,), False)],
)
def test_a_step_of_one_kind_is_one_part_as_it_is(
    query_lens: tuple[int, ...], is_decode: bool
) -> None:
    common = PagedCase(query_lens=query_lens, seq_lens=query_lens).common()
    (part,) = split_step(common)
    assert (part.is_decode, part.rows) == (is_decode, None)
    assert part.common is common


@pytest.mark.parametrize("max_query_len", [1, 4])
@pytest.mark.parametrize(
    ("query_lens", "expected"),
    [
        ((1, 1), [(True, [1, 1])]),
        ((1, 0, 1), [(True, [1, 1])]),
        ((1, 0, 1, 0), [(True, [1, 1])]),
        ((2, 0), [(False, [2])]),
        ((0, 2, 0, 1, 0, 3), [(False, [2, 3]), (True, [1])]),
        ((0, 0), []),
    ],
)
def test_the_lengths_alone_decide_and_sequences_without_a_token_are_in_no_part(
    query_lens: tuple[int, ...], expected: list[tuple[bool, list[int]]], max_query_len: int
) -> None:
    case = PagedCase(query_lens=query_lens, seq_lens=tuple(length + 3 for length in query_lens))
    common = replace(case.common(), max_query_len=max(max_query_len, *query_lens))
    parts = split_step(common)
    assert [(part.is_decode, part.common.cu_seqlens_q.diff().tolist()) for part in parts] == (
        expected
    )
    for part in parts:
        own = part.common
        assert own.num_tokens == own.cu_seqlens_q_cpu[-1] == len(own.slot_mapping)
        assert own.num_reqs == len(own.seq_lens) == len(own.block_table)
        assert own.max_query_len == (1 if part.is_decode else max(expected[0][1]))


@pytest.mark.parametrize(
    ("query_lens", "prefill", "decode"),
    [
        ((1, 1, 4), slice(2, 6), slice(0, 2)),
        ((3, 2, 1), slice(0, 5), slice(5, 6)),
        ((2, 1, 2), [0, 1, 3, 4], slice(2, 3)),
        ((1, 2, 1), slice(1, 3), [0, 3]),
    ],
)
def test_rows_that_lie_together_are_a_slice(
    query_lens: tuple[int, ...], prefill: slice | list[int], decode: slice | list[int]
) -> None:
    common = PagedCase(query_lens=query_lens, seq_lens=query_lens).common()
    found = [
        part.rows.tolist() if isinstance(part.rows, torch.Tensor) else part.rows
        for part in split_step(common)
    ]
    assert found == [prefill, decode]


def test_splitting_a_step_reads_nothing_that_lies_on_the_device() -> None:
    common = PagedCase(query_lens=(3, 1, 5, 1), seq_lens=(9, 33, 5, 20)).common()
    elsewhere = {
        name: getattr(common, name).to("meta")  # whoever reads a value there is refused
        for name in ("cu_seqlens_q", "seq_lens", "block_table", "slot_mapping")
    }
    parts = split_step(replace(common, **elsewhere))
    assert [part.common.num_tokens for part in parts] == [8, 2]
    assert [part.common.max_seq_len for part in parts] == [9, 33]
    for part in parts:
        assert part.common.seq_lens.shape == part.common.seq_lens_cpu.shape
        assert part.common.slot_mapping.shape == (part.common.num_tokens,)
        assert part.common.block_table.device.type == "meta"


def test_the_parts_hold_the_same_places_as_the_whole() -> None:
    common = PagedCase(query_lens=(3, 1, 5, 1), seq_lens=(9, 33, 5, 20)).common()
    for part, seqs in zip(split_step(common), ([0, 2], [1, 3]), strict=True):
        assert part.common.seq_lens.tolist() == common.seq_lens[seqs].tolist()
        assert part.common.seq_lens_cpu.tolist() == common.seq_lens[seqs].tolist()
        assert torch.equal(part.common.block_table, common.block_table[seqs])
        assert part.common.cu_seqlens_q.tolist() == part.common.cu_seqlens_q_cpu.tolist()
        assert part.common.cu_seqlens_q.dtype == torch.int32
        rows = torch.arange(common.num_tokens)[part.rows].tolist()
        assert part.common.slot_mapping.tolist() == common.slot_mapping[rows].tolist()
