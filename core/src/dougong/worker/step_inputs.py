"""From rows and counts to the tensors of one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from dougong.contracts import CommonAttentionMetadata, DeviceRuntime
from dougong.worker.input_batch import InputBatch
from dougong.worker.step_buffers import StepBuffer


@dataclass(slots=True)
class StepInputs:
    """One step's inputs.

    Attributes:
        token_ids: int64 ``[num_tokens]``.
        positions: int64 ``[num_tokens]``.
        common: Per KV cache group.
        rows: Rows of `InputBatch` in step order.
        new_computed: Computed tokens per row after the step.
        sampled: Positions in step order of the sequences that are sampled.
        logits_rows: Rows of the hidden states whose logits are needed; ``None``: all of them.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    common: list[CommonAttentionMetadata]
    rows: npt.NDArray[np.intp]
    new_computed: npt.NDArray[np.int32]
    sampled: npt.NDArray[np.intp]
    logits_rows: torch.Tensor | None


class StepInputBuilder:
    """Owns the buffers; one step's inputs are valid until the next is built.

    Args:
        batch: The rows.
        runtime: For host memory.
        device: Where the step runs.
        max_num_seqs: Sequences in a step, at most.
        max_num_tokens: Tokens in a step, at most.
        block_size: Tokens per block.
        slot_dtypes: Dtype of ``slot_mapping``, per group.
    """

    def __init__(
        self,
        batch: InputBatch,
        runtime: DeviceRuntime,
        device: torch.device,
        *,
        max_num_seqs: int,
        max_num_tokens: int,
        block_size: int,
        slot_dtypes: tuple[torch.dtype, ...],
    ) -> None:
        def buffer(shape: tuple[int, ...], dtype: torch.dtype) -> StepBuffer:
            return StepBuffer(runtime, device, shape, dtype)

        self._batch = batch
        self._block_size = block_size
        self._token_ids = buffer((max_num_tokens,), torch.int64)
        self._positions = buffer((max_num_tokens,), torch.int64)
        self._cu_seqlens = buffer((max_num_seqs + 1,), torch.int32)
        self._seq_lens = buffer((max_num_seqs,), torch.int32)
        self._logits_rows = buffer((max_num_seqs,), torch.int64)
        self._slots = [buffer((max_num_tokens,), dtype) for dtype in slot_dtypes]
        self._tables = [buffer((table.size,), torch.int32) for table in batch.block_tables]
        self._arange = np.arange(max(max_num_tokens, max_num_seqs) + 1, dtype=np.intp)
        self._cu_seqlens.array[0] = 0

    def build(self, num_scheduled: dict[str, int]) -> StepInputs:
        """Inputs of a step in which each of these requests computes that many tokens."""
        batch = self._batch
        num_seqs = len(num_scheduled)
        if num_seqs == batch.num_reqs:  # every live row: row order needs no look-up
            rows = self._arange[:num_seqs]  # read only, so no copy
            counts = np.array([num_scheduled[req_id] for req_id in batch.req_ids], np.int32)
        else:
            rows = batch.rows_of(num_scheduled)
            counts = np.fromiter(num_scheduled.values(), np.int32, num_seqs)
        computed = batch.num_computed[rows]
        new_computed = computed + counts
        num_tokens = int(counts.sum())
        max_query_len = int(counts.max())

        ends = self._cu_seqlens.array[1 : num_seqs + 1]
        np.cumsum(counts, out=ends)
        self._seq_lens.array[:num_seqs] = new_computed
        if max_query_len == 1:
            token_rows, positions = rows, computed.astype(np.int64)
        else:
            token_rows = np.repeat(rows, counts)
            offsets = np.repeat(computed - (ends - counts), counts)
            positions = self._arange[:num_tokens] + offsets.astype(np.int64)
        self._positions.array[:num_tokens] = positions
        self._token_ids.array[:num_tokens] = batch.token_ids[token_rows, positions]

        is_sampled = new_computed == batch.num_tokens[rows]
        sampled = np.flatnonzero(is_sampled)
        logits_rows = None
        if num_tokens != sampled.size:
            self._logits_rows.array[: sampled.size] = ends[sampled] - 1
            logits_rows = self._logits_rows.to_device(sampled.size)

        max_seq_len = int(new_computed.max())
        cu_seqlens = self._cu_seqlens.to_device(num_seqs + 1)
        seq_lens = self._seq_lens.to_device(num_seqs)
        common = [
            CommonAttentionMetadata(
                num_reqs=num_seqs,
                num_tokens=num_tokens,
                max_query_len=max_query_len,
                max_seq_len=max_seq_len,
                cu_seqlens_q=cu_seqlens,
                cu_seqlens_q_cpu=self._cu_seqlens.host[: num_seqs + 1],
                seq_lens=seq_lens,
                seq_lens_cpu=self._seq_lens.host[:num_seqs],
                block_table=self._block_table(group, rows, max_seq_len),
                slot_mapping=self._slot_mapping(group, token_rows, positions),
            )
            for group in range(len(batch.block_tables))
        ]
        return StepInputs(
            token_ids=self._token_ids.to_device(num_tokens),
            positions=self._positions.to_device(num_tokens),
            common=common,
            rows=rows,
            new_computed=new_computed,
            sampled=sampled,
            logits_rows=logits_rows,
        )

    def _block_table(
        self, group: int, rows: npt.NDArray[np.intp], max_seq_len: int
    ) -> torch.Tensor:
        width = -(-max_seq_len // self._block_size)
        buffer, count = self._tables[group], rows.size * width
        np.take(
            self._batch.block_tables[group][:, :width],
            rows,
            axis=0,
            out=buffer.array[:count].reshape(rows.size, width),
        )
        return buffer.to_device(count).view(rows.size, width)

    def _slot_mapping(
        self, group: int, token_rows: npt.NDArray[np.intp], positions: npt.NDArray[np.int64]
    ) -> torch.Tensor:
        buffer, size = self._slots[group], self._block_size
        blocks = self._batch.block_tables[group][token_rows, positions // size]
        count = positions.size
        np.add(
            blocks.astype(np.int64) * size,
            positions % size,
            out=buffer.array[:count],
            casting="same_kind",
        )
        return buffer.to_device(count)
