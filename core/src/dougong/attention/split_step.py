"""One step as two: sequences with one query token, and the others."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dougong.contracts import CommonAttentionMetadata

TokenRows = slice | torch.Tensor
"""Query rows of some sequences: a slice where they lie together, else int64 on the device."""


@dataclass(frozen=True, slots=True)
class StepPart:
    """The sequences of one kind.

    Attributes:
        is_decode: They have one query token each.
        rows: Their rows of ``q``; ``None``: all rows.
        common: Of them alone.
    """

    is_decode: bool
    rows: TokenRows | None
    common: CommonAttentionMetadata


def split_step(common: CommonAttentionMetadata) -> tuple[StepPart, ...]:
    """The parts of a step. One of a single kind is one part, with ``common`` itself.

    Sequences without a query token, which padding makes, go with the others. Counts come from the
    host's copies and places are computed on the device, so nothing waits for it.
    """
    ends = common.num_reqs + 1
    lens = common.cu_seqlens_q_cpu[:ends].diff()
    is_decode = lens == 1
    num_decodes = int(is_decode.sum())
    if num_decodes == 0 or common.max_query_len == 1:
        return (StepPart(num_decodes > 0, None, common),)
    lens_there = common.cu_seqlens_q[:ends].diff()
    is_decode_there = lens_there == 1
    of_tokens = is_decode_there.repeat_interleave(lens_there, output_size=common.num_tokens)
    # Stable, so each kind keeps its order, here and there alike; the others come first.
    seqs, seqs_there, tokens = (
        flags.to(torch.uint8).argsort(stable=True)
        for flags in (is_decode, is_decode_there, of_tokens)
    )
    num_others = common.num_reqs - num_decodes
    parts = []
    for kind, first, last, rows in (
        (False, 0, num_others, tokens[: common.num_tokens - num_decodes]),
        (True, num_others, common.num_reqs, tokens[common.num_tokens - num_decodes :]),
    ):
        here, there = seqs[first:last], seqs_there[first:last]
        at = _together(common, here, len(rows))
        parts.append(_part(common, kind, here, there, rows if at is None else at))
    return tuple(parts)


def _together(common: CommonAttentionMetadata, seqs: torch.Tensor, num_rows: int) -> slice | None:
    """The rows of some sequences, where no other's lie between."""
    start = int(common.cu_seqlens_q_cpu[seqs[0]])
    end = int(common.cu_seqlens_q_cpu[seqs[-1] + 1])
    return slice(start, end) if end - start == num_rows else None


def _part(
    common: CommonAttentionMetadata,
    is_decode: bool,
    seqs: torch.Tensor,
    seqs_there: torch.Tensor,
    rows: TokenRows,
) -> StepPart:
    starts, starts_there = (
        _starts(cu_seqlens_q.diff()[picked])
        for cu_seqlens_q, picked in (
            (common.cu_seqlens_q_cpu, seqs),
            (common.cu_seqlens_q, seqs_there),
        )
    )
    seq_lens = common.seq_lens_cpu[seqs]
    return StepPart(
        is_decode,
        rows,
        CommonAttentionMetadata(
            num_reqs=len(seqs),
            num_tokens=int(starts[-1]),
            max_query_len=1 if is_decode else common.max_query_len,
            max_seq_len=int(seq_lens.max()),
            cu_seqlens_q=starts_there,
            cu_seqlens_q_cpu=starts,
            seq_lens=common.seq_lens[seqs_there],
            seq_lens_cpu=seq_lens,
            block_table=common.block_table[seqs_there],
            slot_mapping=common.slot_mapping[rows],
        ),
    )


def _starts(lens: torch.Tensor) -> torch.Tensor:
    """int32 ``[len(lens) + 1]``: where each sequence's rows begin, and the end."""
    starts = torch.zeros(len(lens) + 1, dtype=torch.int32, device=lens.device)
    torch.cumsum(lens, 0, dtype=torch.int32, out=starts[1:])
    return starts
