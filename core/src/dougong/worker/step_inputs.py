"""From rows and counts to the tensors of one step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from dougong.contracts import CommonAttentionMetadata, DeviceRuntime
from dougong.models.encoder_model import EncoderStep
from dougong.sampling import TopLogprobs
from dougong.worker.graph_dispatch import GraphDispatch, StepGraph
from dougong.worker.input_batch import NO_LORA, InputBatch
from dougong.worker.prompt_rows import PromptTokens
from dougong.worker.step_tensors import StepTensors


@dataclass(slots=True)
class StepInputs:
    """One step's inputs.

    Attributes:
        token_ids: int64 ``[num_tokens]``, rows of padding at the end included.
        positions: int64 ``[num_tokens]``, the same.
        common: Per KV cache group.
        rows: Rows of `InputBatch` in step order.
        new_computed: Computed tokens per row after the step.
        sampled: Positions in step order of the sequences that are sampled.
        logits_rows: Rows of the hidden states whose logits are needed; ``None``: all but padding.
        graph: That is replayed; ``None``: the step runs eagerly.
        num_padding: Rows of padding.
        prompts: Of which log-probabilities are due; ``None``: no row asks for any now.
        prompt_logprobs: Filled in by the forward where ``prompts`` is there.
        query_starts: On the host, per sequence and one more: where its tokens begin in the step.
        encoder: The same for an encoder; ``None``: the model is none.
        pooled: Filled in by the forward of a model that makes vectors.
        lora_slots: int64 ``[num_tokens]``, padding included, ``-1`` for none; ``None``: no token
            uses an adapter, and the step runs eagerly.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    common: list[CommonAttentionMetadata]
    rows: npt.NDArray[np.intp]
    new_computed: npt.NDArray[np.int32]
    sampled: npt.NDArray[np.intp]
    logits_rows: torch.Tensor | None
    graph: StepGraph | None = None
    num_padding: int = 0
    prompts: PromptTokens | None = None
    prompt_logprobs: TopLogprobs | None = None
    lora_slots: torch.Tensor | None = None
    query_starts: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(1, np.int32))
    encoder: EncoderStep | None = None
    pooled: torch.Tensor | None = None


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
        has_lora: Requests may use adapters.

    Attributes:
        tensors: What the steps read.
        dispatch: Chooses each step's graph; ``None``, as at first: every step runs eagerly.
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
        has_lora: bool = False,
    ) -> None:
        self.dispatch: GraphDispatch | None = None
        self.tensors = StepTensors(
            runtime,
            device,
            max_num_seqs=max_num_seqs,
            max_num_tokens=max_num_tokens,
            max_blocks=batch.max_blocks,
            slot_dtypes=slot_dtypes,
            has_lora=has_lora,
        )
        self._batch = batch
        self._block_size = block_size
        self._arange = np.arange(max(max_num_tokens, max_num_seqs) + 1, dtype=np.intp)

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
        max_seq_len = int(new_computed.max())
        graph, num_rows, num_seq_rows = None, num_tokens, num_seqs
        if self.dispatch is not None:
            graph = self.dispatch.choose(num_seqs, num_tokens, max_query_len)
            if graph is not None:
                num_rows, num_seq_rows = self.tensors.pad(graph, num_seqs, num_tokens)

        tensors = self.tensors
        ends = tensors.cu_seqlens.array[1 : num_seqs + 1]
        np.cumsum(counts, out=ends)
        tensors.seq_lens.array[:num_seqs] = new_computed
        if max_query_len == 1:
            token_rows, positions = rows, computed.astype(np.int64)
        else:
            token_rows = np.repeat(rows, counts)
            offsets = np.repeat(computed - (ends - counts), counts)
            positions = self._arange[:num_tokens] + offsets.astype(np.int64)
        tensors.positions.array[:num_tokens] = positions
        tensors.token_ids.array[:num_tokens] = batch.token_ids[token_rows, positions]
        for group in range(len(batch.block_tables)):
            self._fill_slots(group, token_rows, positions)

        is_sampled = new_computed == batch.num_tokens[rows]
        sampled = np.flatnonzero(is_sampled)
        logits_rows = None
        if num_tokens != sampled.size:
            tensors.logits_rows.array[: sampled.size] = ends[sampled] - 1
            logits_rows = tensors.logits_rows.to_device(sampled.size)

        prompts = None
        if batch.sampling.prompts:
            prompts = batch.sampling.prompts.select(rows, computed, counts, batch.token_ids)
        width = -(-max_seq_len // self._block_size)
        common = tensors.metadata(
            [
                self._block_table(group, rows, width, graph)
                for group in range(len(batch.block_tables))
            ],
            num_seq_rows=num_seq_rows,
            num_tokens=num_tokens,
            num_rows=num_rows,
            max_query_len=max_query_len,
            max_seq_len=max_seq_len,
        )
        return StepInputs(
            token_ids=tensors.token_ids.to_device(num_rows),
            positions=tensors.positions.to_device(num_rows),
            common=common,
            rows=rows,
            new_computed=new_computed,
            sampled=sampled,
            logits_rows=logits_rows,
            graph=graph,
            num_padding=num_rows - num_tokens,
            prompts=prompts,
            lora_slots=self._lora_slots(token_rows, num_rows, is_needed=graph is not None),
            query_starts=tensors.cu_seqlens.array[: num_seqs + 1],
            encoder=None if batch.block_tables else self._encoder_step(num_seqs, max_query_len),
        )

    def _encoder_step(self, num_seqs: int, longest: int) -> EncoderStep:
        starts = self.tensors.cu_seqlens
        return EncoderStep(
            starts.to_device(num_seqs + 1), starts.host[: num_seqs + 1].clone(), longest
        )

    def _lora_slots(
        self, token_rows: npt.NDArray[np.intp], num_rows: int, *, is_needed: bool
    ) -> torch.Tensor | None:
        buffer = self.tensors.lora_slots
        if buffer is None:
            return None
        slots = self._batch.lora_slots[token_rows]
        if not is_needed and slots.max() == NO_LORA:
            return None
        buffer.array[: slots.size] = slots
        return buffer.to_device(num_rows)

    def _block_table(
        self, group: int, rows: npt.NDArray[np.intp], width: int, graph: StepGraph | None
    ) -> torch.Tensor:
        buffer, count = self.tensors.tables[group], rows.size * width
        np.take(
            self._batch.block_tables[group][:, :width],
            rows,
            axis=0,
            out=buffer.array[:count].reshape(rows.size, width),
        )
        table = buffer.to_device(count).view(rows.size, width)
        if graph is None or not graph.is_whole:
            return table
        return self.tensors.wide.fill(group, table, graph.num_seqs)

    def _fill_slots(
        self, group: int, token_rows: npt.NDArray[np.intp], positions: npt.NDArray[np.int64]
    ) -> None:
        size = self._block_size
        blocks = self._batch.block_tables[group][token_rows, positions // size]
        np.add(
            blocks.astype(np.int64) * size,
            positions % size,
            out=self.tensors.slots[group].array[: positions.size],
            casting="same_kind",
        )
