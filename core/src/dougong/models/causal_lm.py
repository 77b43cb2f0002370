"""What every model class is to the worker and the loader."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dougong.attention import AttentionStep


@dataclass(frozen=True, slots=True)
class WeightTarget:
    """Where one tensor of a checkpoint goes.

    Attributes:
        parameter: A whole parameter of the model, such as a fused projection.
        rows: The part of its first axis that this tensor fills; ``None``: all of it.
        added: The loader adds it to what the checkpoint says: 1 for norms that multiply by 1 + w.
    """

    parameter: torch.Tensor
    rows: slice | None = None
    added: float = 0.0

    @property
    def view(self) -> torch.Tensor:
        """The memory to fill; contiguous, since it spans whole rows."""
        return self.parameter if self.rows is None else self.parameter[self.rows]


class CausalLM(nn.Module):
    """A model that predicts the next token.

    A class is made with ``(hf_config, dtype, max_model_len)`` under the loader's default device; it
    reads no file and fills no parameter.

    Args:
        hf_config: The checkpoint's configuration in Hugging Face's vocabulary. A head shares the
            embedding's weight where ``tie_word_embeddings`` is true.
        dtype: Of parameters and activations.
        max_model_len: Longest sequence the engine will run; ``None``: as long as the config says.

    Raises:
        ConfigError: The config lacks something or asks for something unknown.
    """

    def __init__(
        self,
        hf_config: Mapping[str, Any],
        dtype: torch.dtype,
        max_model_len: int | None = None,
    ) -> None:
        super().__init__()
        self.hf_config = hf_config
        self.dtype = dtype
        self.max_model_len = max_model_len

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

    @abstractmethod
    def weight_targets(self) -> Mapping[str, WeightTarget]:
        """Every tensor the model needs, by its Hugging Face name, and where it goes."""
