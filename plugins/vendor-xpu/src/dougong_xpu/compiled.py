"""Which attention kernels the published wheel of ``vllm-xpu-kernels`` holds.

The library compiles a kernel for each combination of head size, block size, group of query heads
and options, and the wheel on the package index has a selection of them; any other call raises
*kernel tuple not compiled*. So the selection stands here as data, read from the symbols of
``libattn_kernels_xe_2.so`` and ``libattn_kernels_xe_3.so`` of 0.1.16.2, which agree in it. A lane
of the tests reads them again.
"""

from __future__ import annotations

from collections.abc import Iterator

from dougong.contracts import AttentionPhase, AttentionRequest

LARGEST_GROUP_OF_8 = 8
"""Query heads per KV head that the smaller of the two decode kernels takes."""

BLOCK_SIZES = (64, 16, 32, 128)
"""Tokens per block that this wheel offers, preferred first; the library takes multiples of 16."""

DECODE = frozenset(
    {
        (8, 64, 16), (8, 64, 64), (8, 96, 64), (8, 128, 16), (8, 128, 32), (8, 128, 64),
        (8, 192, 64), (8, 256, 64), (8, 512, 32), (8, 512, 64),
        (16, 64, 16), (16, 64, 32), (16, 64, 64), (16, 128, 16), (16, 128, 64), (16, 256, 64),
    }
)  # fmt: skip
"""Group of query heads, head size and tile of keys: one query per sequence, no window."""

DECODE_WINDOW = frozenset(
    {
        (8, 64, 64), (8, 96, 16), (8, 96, 64), (8, 128, 16), (8, 128, 64), (8, 256, 32),
        (8, 256, 64), (16, 128, 16), (16, 128, 64),
    }
)  # fmt: skip
"""The same with a window."""

PREFILL = frozenset({64, 96, 128, 192, 256, 512})
"""Head sizes: several queries per sequence, no window."""

PREFILL_WINDOW = frozenset({64, 128})
"""The same with a window. The symbols of 96 and 256 leave it open whether they are meant for
windows or for sinks, so they are left out."""


def tile_of(block_size: int) -> int:
    """Keys that a decode kernel reads at once from blocks of so many tokens."""
    if block_size % 64 == 0:
        return 64
    return 32 if block_size == 32 else 16


def missing_kernels(request: AttentionRequest) -> Iterator[str]:
    """Kernels that such a layer needs and the wheel has not, a sentence each.

    A step that mixes prefill and decode calls the kernels of both.
    """
    size, has_window = request.head_dim, request.sliding_window is not None
    with_window = " with a window" if has_window else ""
    if request.phase is not AttentionPhase.DECODE:
        sizes = PREFILL_WINDOW if has_window else PREFILL
        if size not in sizes:
            known = ", ".join(map(str, sorted(sizes)))
            yield f"head size {size}; prefill{with_window} is compiled for {known}"
    if request.phase is not AttentionPhase.PREFILL:
        yield from _missing_decode(request, with_window)


def _missing_decode(request: AttentionRequest, with_window: str) -> Iterator[str]:
    compiled = DECODE_WINDOW if request.sliding_window is not None else DECODE
    ratio = request.num_heads // request.num_kv_heads
    group = 8 if ratio <= LARGEST_GROUP_OF_8 else 16
    sizes = BLOCK_SIZES if request.block_size is None else (request.block_size,)
    if not any((group, request.head_dim, tile_of(size)) in compiled for size in sizes):
        blocks = f", blocks of {request.block_size} tokens" if request.block_size else ""
        known = sorted({(head, tile) for own, head, tile in compiled if own == group})
        listed = ", ".join(f"{head} in {tile}" for head, tile in known)
        yield (
            f"head size {request.head_dim}{blocks} and {ratio} query heads per KV head; decode"
            f"{with_window} is compiled for head sizes in tiles of keys: {listed}"
        )
