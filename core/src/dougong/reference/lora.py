"""Low-rank adapters in plain torch: every slot in two products, and a mask of each token's own."""

from __future__ import annotations

import torch

from dougong.contracts import LoRAWrapper


class ReferenceLoRAWrapper(LoRAWrapper):
    """Computes all slots for all tokens and keeps of each token's the one it uses.

    Nothing is asked of the device and every shape follows from the step's number of tokens, so
    steps may be captured. The cost grows with ``max_loras * rank``, which is small beside a
    projection's width.

    Args:
        max_num_batched_tokens: See `LoRAWrapper`.
        max_loras: See `LoRAWrapper`.
        device: See `LoRAWrapper`.
    """

    def __init__(
        self, *, max_num_batched_tokens: int, max_loras: int, device: torch.device
    ) -> None:
        super().__init__(
            max_num_batched_tokens=max_num_batched_tokens, max_loras=max_loras, device=device
        )
        self._slots = torch.arange(max_loras, device=device)
        self._is_used = torch.zeros(
            max_num_batched_tokens, max_loras, 1, dtype=torch.bool, device=device
        )
        self._num_tokens = 0

    def update_metadata(self, lora_indices: torch.Tensor) -> None:
        """See `LoRAWrapper.update_metadata`; the mask lies at one place for every step."""
        self._num_tokens = num_tokens = lora_indices.shape[0]
        is_used = self._is_used[:num_tokens].view(num_tokens, self.max_loras)
        torch.eq(lora_indices.unsqueeze(1), self._slots, out=is_used)

    def add_lora_linear(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        lora_a: torch.Tensor,
        lora_b: torch.Tensor,
        scale: float,
    ) -> None:
        """See `LoRAWrapper.add_lora_linear`."""
        num_tokens = self._num_tokens
        num_slots, rank, in_features = lora_a.shape
        inner = (x @ lora_a.view(num_slots * rank, in_features).T).view(num_tokens, num_slots, rank)
        own = torch.where(self._is_used[:num_tokens], inner, 0.0).view(num_tokens, num_slots * rank)
        b_transposed = lora_b.transpose(1, 2).reshape(num_slots * rank, -1)
        out.addmm_(own, b_transposed, alpha=scale)
