"""Everything a step reads on the device: buffers that stay, their padding, the metadata made of
them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dougong.contracts import CommonAttentionMetadata, DeviceRuntime
from dougong.worker.graph_dispatch import StepGraph
from dougong.worker.input_batch import NO_LORA
from dougong.worker.step_buffers import StepBuffer
from dougong.worker.wide_tables import WideTables

PADDING_SLOT = -1


class StepTensors:
    """Buffers for the largest step; each one's first entries are the step's.

    Args:
        runtime: For host memory.
        device: Where the step runs.
        max_num_seqs: Sequences in a step, at most.
        max_num_tokens: Tokens in a step, at most.
        max_blocks: Blocks of a sequence, at most.
        slot_dtypes: Dtype of ``slot_mapping``, per KV cache group.
        has_lora: Tokens may use adapters.

    Attributes:
        token_ids: int64, per token.
        positions: int64, per token.
        slots: Per group, per token.
        cu_seqlens: int32, per sequence and one more; begins with 0.
        seq_lens: int32, per sequence.
        logits_rows: int64, per sequence.
        tables: Per group, int32: block tables, as wide as a step needs.
        lora_slots: int64, per token; ``None``: no token uses an adapter, ever.
    """

    def __init__(
        self,
        runtime: DeviceRuntime,
        device: torch.device,
        *,
        max_num_seqs: int,
        max_num_tokens: int,
        max_blocks: int,
        slot_dtypes: Sequence[torch.dtype],
        has_lora: bool = False,
    ) -> None:
        def buffer(size: int, dtype: torch.dtype) -> StepBuffer:
            return StepBuffer(runtime, device, (size,), dtype)

        self.token_ids = buffer(max_num_tokens, torch.int64)
        self.positions = buffer(max_num_tokens, torch.int64)
        self.slots = [buffer(max_num_tokens, dtype) for dtype in slot_dtypes]
        self.cu_seqlens = buffer(max_num_seqs + 1, torch.int32)
        self.cu_seqlens.array[0] = 0
        self.seq_lens = buffer(max_num_seqs, torch.int32)
        self.logits_rows = buffer(max_num_seqs, torch.int64)
        self.tables = [buffer(max_num_seqs * max_blocks, torch.int32) for _ in slot_dtypes]
        self.lora_slots = buffer(max_num_tokens, torch.int64) if has_lora else None
        self._wide: WideTables | None = None
        self._wide_shape = len(slot_dtypes), max_num_seqs, max_blocks, device

    def widen(self) -> None:
        """Make what whole captured steps need beside the rest; outside inference mode, as all that
        is written between steps."""
        self._wide = WideTables(*self._wide_shape)

    @property
    def wide(self) -> WideTables:
        """Block tables of whole captured steps."""
        assert self._wide is not None, "made before a whole step is captured"
        return self._wide

    def num_wide_bytes(self) -> int:
        """Of what whole captured steps alone need."""
        return 0 if self._wide is None else self._wide.num_bytes()

    def pad(self, graph: StepGraph, num_seqs: int, num_tokens: int) -> tuple[int, int]:
        """Fill what a step's own tokens and sequences leave of a graph's inputs.

        Padding tokens are token 0 at position 0 with slot -1 and no adapter; padding sequences have
        no token and a length of 0.

        Returns:
            Rows of tokens, and of the sequences that attention has to do with.
        """
        padding = slice(num_tokens, graph.num_tokens)
        self.token_ids.array[padding] = 0
        self.positions.array[padding] = 0
        for slots in self.slots:
            slots.array[padding] = PADDING_SLOT
        if self.lora_slots is not None:
            self.lora_slots.array[padding] = NO_LORA
        if not graph.is_whole:
            return graph.num_tokens, num_seqs
        self.cu_seqlens.array[num_seqs + 1 : graph.num_seqs + 1] = num_tokens
        self.seq_lens.array[num_seqs : graph.num_seqs] = 0
        return graph.num_tokens, graph.num_seqs

    def metadata(
        self,
        block_tables: Sequence[torch.Tensor],
        *,
        num_seq_rows: int,
        num_tokens: int,
        num_rows: int,
        max_query_len: int,
        max_seq_len: int,
    ) -> list[CommonAttentionMetadata]:
        """Of each group, from what lies in the host's arrays; copies it to the device.

        Args:
            block_tables: Of each group, on the device.
            num_seq_rows: Sequences, padding included.
            num_tokens: Tokens without padding.
            num_rows: Tokens, padding included.
            max_query_len: See `CommonAttentionMetadata`.
            max_seq_len: See `CommonAttentionMetadata`.
        """
        cu_seqlens = self.cu_seqlens.to_device(num_seq_rows + 1)
        seq_lens = self.seq_lens.to_device(num_seq_rows)
        return [
            CommonAttentionMetadata(
                num_reqs=num_seq_rows,
                num_tokens=num_tokens,
                max_query_len=max_query_len,
                max_seq_len=max_seq_len,
                cu_seqlens_q=cu_seqlens,
                cu_seqlens_q_cpu=self.cu_seqlens.host[: num_seq_rows + 1],
                seq_lens=seq_lens,
                seq_lens_cpu=self.seq_lens.host[:num_seq_rows],
                block_table=table,
                slot_mapping=slots.to_device(num_rows),
            )
            for table, slots in zip(block_tables, self.slots, strict=True)
        ]
