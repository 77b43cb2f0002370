"""Block tables of one width and at one place, as captured steps read them."""

from __future__ import annotations

import torch


class WideTables:
    """One table per KV cache group, as wide as the longest sequence needs.

    Every entry is a block's number at all times: zero at first, later that of a step before. So a
    kernel that reads whole rows and leaves out by length what is too much reads nothing outside the
    cache.

    Args:
        num_groups: KV cache groups.
        max_num_seqs: Rows.
        max_blocks: Columns.
        device: Where steps read.
    """

    def __init__(
        self, num_groups: int, max_num_seqs: int, max_blocks: int, device: torch.device
    ) -> None:
        shape = (max_num_seqs, max_blocks)
        self._tables = [
            torch.zeros(shape, dtype=torch.int32, device=device) for _ in range(num_groups)
        ]

    def fill(self, group: int, table: torch.Tensor, num_rows: int) -> torch.Tensor:
        """The first ``num_rows`` rows, in the corner of which ``table`` was copied.

        Args:
            group: KV cache group.
            table: int32 ``[num_seqs, width]`` on the device; ``num_seqs`` is at most ``num_rows``.
            num_rows: Rows of the step, padding included.
        """
        wide = self._tables[group]
        wide[: table.shape[0], : table.shape[1]].copy_(table)
        return wide[:num_rows]

    def rows(self, group: int, num_rows: int) -> torch.Tensor:
        """The first rows as they are."""
        return self._tables[group][:num_rows]

    def num_bytes(self) -> int:
        """Of all tables."""
        return sum(table.nbytes for table in self._tables)
