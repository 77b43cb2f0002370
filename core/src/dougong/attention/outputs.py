"""Where attention layers write in captured steps: the same memory whatever the step's size."""

from __future__ import annotations

import torch


class AttentionOutputs:
    """One buffer per layer, made when the layer first asks for it.

    It begins as zeros, so that rows of padding, which a backend may leave as they are, never hold
    what is no number.

    Args:
        max_num_tokens: Rows, at most.
    """

    def __init__(self, max_num_tokens: int) -> None:
        self._max_num_tokens = max_num_tokens
        self._buffers: dict[int, torch.Tensor] = {}

    def of_layer(self, layer_index: int, q: torch.Tensor) -> torch.Tensor:
        """As many rows as ``q`` has, of its shape, dtype and device."""
        buffer = self._buffers.get(layer_index)
        if buffer is None:
            shape = (self._max_num_tokens, *q.shape[1:])
            buffer = torch.zeros(shape, dtype=q.dtype, device=q.device)
            self._buffers[layer_index] = buffer
        return buffer[: q.shape[0]]

    def num_bytes(self) -> int:
        """Of all buffers."""
        return sum(buffer.nbytes for buffer in self._buffers.values())
