"""The table of blocks, without what lies behind a sequence's own."""

from __future__ import annotations

import torch
from dougong.contracts import CommonAttentionMetadata


def own_blocks(common: CommonAttentionMetadata, block_size: int) -> torch.Tensor:
    """Block 0 wherever the table names none of a sequence's: what stands there may be anything, and
    a kernel that reads ahead must find a block. Nothing here waits for the device.

    Args:
        common: Of the step.
        block_size: Tokens per block.
    """
    width = common.block_table.shape[1]
    first_tokens = torch.arange(width, device=common.block_table.device) * block_size
    is_behind = first_tokens >= common.seq_lens.unsqueeze(1)
    return common.block_table.masked_fill(is_behind, 0)
