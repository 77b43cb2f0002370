"""Attention over tiles: a few query rows of one sequence against all of its keys.

What is launched depends on shapes alone: on how many tokens, sequences and blocks the step's
buffers hold, never on what is in them. So a step can be captured and replayed with other lengths,
and nothing here waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from dougong.contracts import CommonAttentionMetadata

TILE_QUERIES = 32
"""Query rows of a tile in a step with a prefill; a step of decodes has tiles of one row."""

WORKSPACE_BYTES = 8 << 20
"""What tiles that are computed together may take."""

_HIDDEN = -1e30  # finite: where every key is hidden, as in padding, no NaN comes out
_FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Tables:
    """Where each tile's rows lie; all on the device.

    Attributes:
        blocks: int32 ``[num_tiles, max_blocks_per_seq]``; entries that no sequence has are 0.
        rows: int64 ``[num_tiles, tile_queries]``: rows of ``q``; those beyond the tile are clamped.
        hidden: bool ``[num_tiles, tile_queries, num_keys]``: keys that a row does not see.
        unwritten: bool ``[num_tiles, num_keys]``: places that hold nothing.
        places: int64 ``[num_tokens]``: tile times its rows plus the row, of each token.
    """

    blocks: torch.Tensor
    rows: torch.Tensor
    hidden: torch.Tensor
    unwritten: torch.Tensor
    places: torch.Tensor


class StepTiles:
    """What one step's layers of a group share; the first of them computes it.

    Args:
        common: The step; its device tensors are read, and of its numbers ``max_query_len`` alone,
            which stays the same for whatever replays a captured step.
        block_size: Tokens per block.
        window: Tokens a query sees; ``None``: all before it.
    """

    def __init__(
        self, common: CommonAttentionMetadata, block_size: int, window: int | None
    ) -> None:
        self.block_size = block_size
        self._common = common
        self._window = window
        self._first_layer: object = None
        self._tables: Tables | None = None

    def enter(self, layer: object, num_tokens: int) -> None:
        """Compute the tables when the step's first layer comes.

        It comes again where one step is run twice, as for a warm-up before a capture: what was
        computed before would not be a part of the captured work.
        """
        if self._first_layer in (None, layer):
            self._first_layer = layer
            tile = 1 if self._common.max_query_len == 1 else TILE_QUERIES
            self._tables = make_tables(
                self._common, num_tokens, tile, self.block_size, self._window
            )

    @property
    def tables(self) -> Tables:
        """Of the step; `enter` was called before."""
        assert self._tables is not None, "the first layer enters before it asks"
        return self._tables


def make_tables(
    common: CommonAttentionMetadata,
    num_tokens: int,
    tile: int,
    block_size: int,
    window: int | None,
) -> Tables:
    """Cut every sequence's query rows into tiles.

    Args:
        common: The step; sequences without a query row, which padding makes, get no tile.
        num_tokens: Rows of ``q``, padding included.
        tile: Query rows per tile.
        block_size: Tokens per block.
        window: Tokens a query sees; ``None``: all before it.
    """
    starts, ends, lens = common.cu_seqlens_q[:-1], common.cu_seqlens_q[1:], common.seq_lens
    num_seqs, width = common.block_table.shape
    device = lens.device
    # Sequence, and row within it, of each tile. Every sequence may leave one tile unfilled.
    tile_ends = ((ends - starts + (tile - 1)).div(tile, rounding_mode="floor")).cumsum(0)
    num_tiles = min(num_tokens, num_tokens // tile + num_seqs)
    index = torch.arange(num_tiles, device=device)
    seq = torch.searchsorted(tile_ends, index, right=True).clamp(max=num_seqs - 1)
    tile_starts = torch.cat((tile_ends.new_zeros(1), tile_ends[:-1]))
    first = starts[seq] + (index - tile_starts[seq]) * tile
    rows = first.unsqueeze(1) + torch.arange(tile, device=device)
    # Positions of queries and keys in the sequence.
    seq_lens = lens[seq].unsqueeze(1)
    query_at = (rows - ends[seq].unsqueeze(1) + seq_lens).unsqueeze(2)
    key_at = torch.arange(width * block_size, device=device)
    unwritten = key_at >= seq_lens
    hidden = (key_at > query_at) | unwritten.unsqueeze(1)
    if window is not None:
        hidden = hidden | (key_at <= query_at - window)
    # The last entries of a row of the table may be anything: block 0 can always be read.
    has_block = torch.arange(width, device=device) * block_size < seq_lens
    blocks = common.block_table[seq].masked_fill(~has_block, 0)
    # Each token's place among the tiles; tokens of padding take the last sequence's.
    token = torch.arange(num_tokens, dtype=ends.dtype, device=device)
    owner = torch.searchsorted(ends, token, right=True).clamp(max=num_seqs - 1)
    places = tile_starts[owner] * tile + token - starts[owner]
    return Tables(
        blocks=blocks,
        rows=rows.clamp(min=0, max=num_tokens - 1),
        hidden=hidden,
        unwritten=unwritten,
        places=places.clamp(min=0, max=num_tiles * tile - 1),
    )


def attend_tiles(
    q: torch.Tensor, cache: torch.Tensor, step: StepTiles, scale: float, soft_cap: float | None
) -> torch.Tensor:
    """Every token's attention, in float32.

    Args:
        q: ``[num_tokens, num_heads, head_dim]``.
        cache: ``[num_kv_heads, num_blocks, rows, block_size]``, see `TileAttentionBackend`.
        step: Whose tables were computed.
        scale: Factor of ``q @ k``.
        soft_cap: Cap on scores; ``None``: none.

    Returns:
        ``[num_tokens, num_heads, head_dim_v]``; what rows of padding hold means nothing.
    """
    tables = step.tables
    num_tiles, tile = tables.rows.shape
    at_once = _tiles_at_once(q, cache, tables)
    parts = [
        _attend(q, cache, tables, slice(start, start + at_once), scale, soft_cap)
        for start in range(0, num_tiles, at_once)
    ]
    attended = parts[0] if len(parts) == 1 else torch.cat(parts)
    return attended.reshape(num_tiles * tile, *attended.shape[2:]).index_select(0, tables.places)


def _attend(
    q: torch.Tensor,
    cache: torch.Tensor,
    tables: Tables,
    part: slice,
    scale: float,
    soft_cap: float | None,
) -> torch.Tensor:
    """Some tiles: ``[tiles, tile_queries, num_heads, head_dim_v]``."""
    blocks, rows = tables.blocks[part], tables.rows[part]
    (num_heads, head_dim), (tiles, tile) = q.shape[1:], rows.shape
    kv_heads, _, kv_rows, block_size = cache.shape
    group, width = num_heads // kv_heads, blocks.shape[1]
    # Indexed by block, which is outermost in memory: [tiles, width, kv_heads, kv_rows, block_size].
    stored = cache.transpose(0, 1)[blocks.flatten()].float()
    stored = stored.view(tiles, width, kv_heads, kv_rows, block_size)
    # Nothing was ever written to the places behind a sequence: 0 times NaN would be NaN.
    unwritten = tables.unwritten[part].view(tiles, width, 1, 1, block_size)
    stored = stored.masked_fill_(unwritten, 0.0)
    keys, values = stored[..., :head_dim, :], stored[..., head_dim:, :]
    # Rows of the heads that share a KV head side by side: [tiles, 1, kv_heads, rows, head_dim].
    queries = q.index_select(0, rows.flatten()).view(tiles, tile, kv_heads, group, head_dim)
    queries = queries.permute(0, 2, 3, 1, 4).reshape(tiles, 1, kv_heads, group * tile, head_dim)
    scores = torch.matmul(queries.float(), keys).permute(0, 2, 3, 1, 4)
    scores = scores.reshape(tiles, kv_heads, group, tile, width * block_size) * scale
    if soft_cap is not None:
        scores = torch.tanh(scores / soft_cap) * soft_cap
    hidden = tables.hidden[part].view(tiles, 1, 1, tile, -1)
    weights = scores.masked_fill_(hidden, _HIDDEN).softmax(dim=-1)
    weights = weights.view(tiles, kv_heads, group * tile, width, block_size).permute(0, 3, 1, 2, 4)
    attended = torch.matmul(weights, values.transpose(3, 4)).sum(dim=1)
    attended = attended.view(tiles, kv_heads, group, tile, -1)
    return attended.permute(0, 3, 1, 2, 4).reshape(tiles, tile, num_heads, -1)


def _tiles_at_once(q: torch.Tensor, cache: torch.Tensor, tables: Tables) -> int:
    """As many as the workspace holds: K and V as stored and in float32, scores four times."""
    tile, num_keys = tables.hidden.shape[1:]
    kv_heads, kv_rows = cache.shape[0], cache.shape[2]
    elements = 2 * kv_heads * kv_rows + 4 * q.shape[1] * tile
    return max(1, WORKSPACE_BYTES // (elements * num_keys * _FLOAT32_BYTES))
