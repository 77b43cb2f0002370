"""One step as two: sequences with one query token, and the others."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    """The parts of a step, the others before those with one token; of a single kind, one part, with
    ``common`` itself; where all have one token, its ``max_query_len`` is 1.

    Sequences without a query token, which padding makes, are in no part: nobody computes them. The
    lengths alone decide, since ``max_query_len`` may be a bound. Counts come from the host's copies
    and places are computed on the device, so nothing waits for it.
    """
    ends = common.num_reqs + 1
    kinds = _kinds(common.cu_seqlens_q_cpu[:ends].diff())
    num_idle, num_others, num_decodes = torch.bincount(kinds, minlength=3).tolist()
    if num_idle == 0 and (num_others == 0) != (num_decodes == 0):
        if num_others == 0 and common.max_query_len != 1:
            common = replace(common, max_query_len=1)
        return (StepPart(num_others == 0, None, common),)
    lens_there = common.cu_seqlens_q[:ends].diff()
    kinds_there = _kinds(lens_there)
    kind_of_token = kinds_there.repeat_interleave(lens_there, output_size=common.num_tokens)
    # Stable, so each kind keeps its order, here and there alike.
    seqs, seqs_there, tokens = (
        of.argsort(stable=True) for of in (kinds, kinds_there, kind_of_token)
    )
    first_decode = num_idle + num_others
    parts = []
    for is_decode, of, rows in (
        (False, slice(num_idle, first_decode), tokens[: common.num_tokens - num_decodes]),
        (True, slice(first_decode, None), tokens[common.num_tokens - num_decodes :]),
    ):
        here, there = seqs[of], seqs_there[of]
        if len(here):
            at = _together(common, here, len(rows))
            parts.append(_part(common, is_decode, here, there, rows if at is None else at))
    return tuple(parts)


def _kinds(lens: torch.Tensor) -> torch.Tensor:
    """0: no query token; 1: several; 2: one."""
    return (lens > 1) + 2 * (lens == 1)


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
            max_query_len=1 if is_decode else int(starts.diff().max()),
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
