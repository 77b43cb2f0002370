"""A step of padding alone, with which a graph is captured."""

from __future__ import annotations

import numpy as np

from dougong.contracts import GraphLevel
from dougong.worker.graph_dispatch import StepGraph
from dougong.worker.input_batch import NO_LORA
from dougong.worker.step_inputs import StepInputs
from dougong.worker.step_tensors import PADDING_SLOT, StepTensors


def padding_step(tensors: StepTensors, graph: StepGraph, max_seq_len: int) -> StepInputs:
    """Inputs in the memory that every step of this graph has; nothing is written to the cache.

    The sequences of a whole step share its tokens and begin with them. Lengths that the host alone
    knows are the largest that a step of this graph can have.

    Args:
        tensors: Of the steps.
        graph: To be captured.
        max_seq_len: Of any sequence.
    """
    num_seqs, num_tokens = graph.num_seqs, graph.num_tokens
    for buffer in (tensors.token_ids, tensors.positions):
        buffer.array[:num_tokens] = 0
    for slots in tensors.slots:
        slots.array[:num_tokens] = PADDING_SLOT
    lora_slots = None
    if tensors.lora_slots is not None:
        tensors.lora_slots.array[:num_tokens] = NO_LORA
        lora_slots = tensors.lora_slots.to_device(num_tokens)
    common = []
    if graph.is_whole:
        starts = np.arange(num_seqs + 1) * num_tokens // num_seqs
        tensors.cu_seqlens.array[: num_seqs + 1] = starts
        tensors.seq_lens.array[:num_seqs] = np.diff(starts)
        common = tensors.metadata(
            [tensors.wide.rows(group, num_seqs) for group in range(len(tensors.slots))],
            num_seq_rows=num_seqs,
            num_tokens=num_tokens,
            num_rows=num_tokens,
            max_query_len=1 if graph.kind is GraphLevel.DECODE else num_tokens,
            max_seq_len=max_seq_len,
        )
    none = np.zeros(0, np.intp)
    return StepInputs(
        token_ids=tensors.token_ids.to_device(num_tokens),
        positions=tensors.positions.to_device(num_tokens),
        common=common,
        rows=none,
        new_computed=none.astype(np.int32),
        sampled=none,
        logits_rows=None,
        graph=graph,
        num_padding=num_tokens,
        lora_slots=lora_slots,
    )
