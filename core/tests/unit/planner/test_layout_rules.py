from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dougong.contracts import KVBuffer, KVLayout
from dougong.planner.layout_rules import layout_problems, most_blocks

BUFFER = KVBuffer(name="k", block_shape=(16, 2, 24), dtype="bfloat16")
LAYOUT = KVLayout(name="plain", buffers=(BUFFER,), block_sizes=(16,))


def problems(layout: KVLayout, block_size: int = 16, num_blocks: int | None = None) -> list[str]:
    return list(
        layout_problems(layout, block_size=block_size, kv_dtype="bfloat16", num_blocks=num_blocks)
    )


def test_a_layout_that_can_be_allocated_and_numbered_has_no_problem() -> None:
    assert problems(LAYOUT) == []
    assert problems(replace(LAYOUT, alignment_bytes=4096)) == []
    assert problems(replace(LAYOUT, slot_dtype="int32"), num_blocks=2**27) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"block_sizes": (32, 64)}, "no blocks of 16 tokens; takes 32, 64"),
        ({"slot_dtype": "int16"}, "slots are int16; takes int32, int64"),
        ({"alignment_bytes": 0}, "aligns blocks to 0 bytes"),
        ({"buffers": (replace(BUFFER, dtype="int3"),)}, "unknown dtypes: k of int3"),
        ({"buffers": (replace(BUFFER, dtype="float32"),)}, "stores float32, and no KV cache of"),
        ({"buffers": ()}, "stores nothing, and no KV cache of bfloat16"),
        (
            {"buffers": (replace(BUFFER, block_axis=2),), "alignment_bytes": 4096},
            "blocks of 1536 bytes, which cannot each start at a multiple of 4096",
        ),
        (
            {"buffers": (replace(BUFFER, stride_order=(1, 0, 2, 3)),), "alignment_bytes": 1024},
            "cannot each start at a multiple of 1024",
        ),
        ({"alignment_bytes": 1021}, "cannot each start at a multiple of 1021"),
        ({"buffers": (replace(BUFFER, stride_order=(0, 1, 1, 3)),)}, "names block axis 0 and the"),
        ({"buffers": (replace(BUFFER, block_axis=4),)}, "names block axis 4"),
    ],
)
def test_what_the_core_cannot_allocate_is_told(changes: dict[str, Any], told: str) -> None:
    (problem,) = problems(replace(LAYOUT, **changes))
    assert told in problem


def test_blocks_outermost_in_memory_can_be_aligned_wherever_their_axis_stands() -> None:
    moved = replace(BUFFER, block_axis=1, stride_order=(1, 0, 2, 3))
    assert problems(replace(LAYOUT, buffers=(moved,), alignment_bytes=4096)) == []


def test_more_blocks_than_slots_of_the_dtype_can_number_are_told() -> None:
    narrow = replace(LAYOUT, slot_dtype="int32")
    (problem,) = problems(narrow, num_blocks=2**27 + 1)
    assert "number 134217728 blocks of 16 tokens, and num_kv_blocks=134217729" in problem
    assert most_blocks(narrow, 16) == 2**27
    assert most_blocks(LAYOUT, 16) == 2**59
