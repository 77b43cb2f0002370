"""Memory of a KV buffer: where blocks begin, how axes lie."""

from __future__ import annotations

import pytest
import torch

from dougong.contracts import KVBuffer, PluginError
from dougong.worker.kv_buffers import allocate_buffer

CPU = torch.device("cpu")


@pytest.mark.parametrize("alignment", [1, 64, 512, 4096])
def test_every_block_starts_at_a_multiple_of_the_alignment(alignment: int) -> None:
    buffer = KVBuffer(name="k", block_shape=(16, 2, 20), dtype="bfloat16")
    tensor = allocate_buffer(buffer, 5, CPU, alignment)
    assert tensor.shape == (5, 16, 2, 20)
    tensor.fill_(1.0)
    assert all(tensor[block].data_ptr() % alignment == 0 for block in range(5))
    assert tensor.sum() == tensor.numel()


def test_blocks_that_cannot_be_aligned_are_the_plugins_fault() -> None:
    buffer = KVBuffer(name="k", block_shape=(2, 16, 20), dtype="bfloat16", block_axis=1)
    with pytest.raises(PluginError, match="put the block axis outermost"):
        allocate_buffer(buffer, 5, CPU, 4096)


def test_a_buffer_lies_in_memory_as_its_stride_order_says() -> None:
    buffer = KVBuffer(
        name="k", block_shape=(2, 16, 8), dtype="float32", block_axis=1, stride_order=(2, 1, 0, 3)
    )
    tensor = allocate_buffer(buffer, 3, CPU)
    assert tensor.shape == (2, 3, 16, 8)
    assert tensor.stride() == (8, 16, 48, 1)
