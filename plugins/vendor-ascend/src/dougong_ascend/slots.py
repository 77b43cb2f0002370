"""Where rows of padding are written: somewhere that nobody reads.

The core marks them with slot -1. The vendor's ops take slots from 0 on, each at most once in a
call, and promise nothing for others. Leaving the rows out would take their number, and the host
would wait for it; so they go to the first blocks of the cache, which no sequence gets, each row of
`PADDING_SLOTS` consecutive ones to a slot of its own.
"""

from __future__ import annotations

import torch

PADDING_SLOTS = 512
"""Rows of a step that have slots of their own for padding: as many as the largest step that can be
captured has. Steps that are not captured have no padding, and may be longer."""


def reserved_blocks(block_size: int) -> int:
    """Blocks that `PADDING_SLOTS` take."""
    return -(-PADDING_SLOTS // block_size)


class PaddingSlots:
    """Numbers of the slots for padding, row by row; made once for a device and kept."""

    def __init__(self) -> None:
        self._places: torch.Tensor | None = None

    def settle(self, slot_mapping: torch.Tensor) -> torch.Tensor:
        """``slot_mapping``, contiguous, with a slot of padding in the place of each -1.

        Args:
            slot_mapping: int32 ``[num_tokens]``.
        """
        num_rows = slot_mapping.shape[0]
        places = self._places
        if places is None or places.shape[0] < num_rows or places.device != slot_mapping.device:
            length = max(num_rows, PADDING_SLOTS)
            rows = torch.arange(length, dtype=slot_mapping.dtype, device=slot_mapping.device)
            places = self._places = rows % PADDING_SLOTS
        return torch.where(slot_mapping < 0, places[:num_rows], slot_mapping)
