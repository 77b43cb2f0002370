"""What every model class that generates text is to the worker."""

from __future__ import annotations

from abc import abstractmethod

import torch

from dougong.attention import AttentionStep
from dougong.models.loadable import LoadableModel, WeightTarget

__all__ = ["CausalLM", "WeightTarget"]


class CausalLM(LoadableModel):
    """A model that predicts the next token; made as every `LoadableModel` is."""

    @abstractmethod
    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, step: AttentionStep
    ) -> torch.Tensor:
        """Hidden states of this step's tokens, after the last norm.

        Args:
            token_ids: int64 ``[num_tokens]``, inside the vocabulary.
            positions: int64 ``[num_tokens]``, each below ``max_model_len``.
            step: Lengths and places, for the attention layers.

        Returns:
            ``[num_tokens, hidden_size]`` in the model's dtype.
        """

    @abstractmethod
    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of some rows of what `forward` returned.

        Args:
            hidden: ``[num_rows, hidden_size]``.

        Returns:
            float32 ``[num_rows, vocab_size]``.
        """
