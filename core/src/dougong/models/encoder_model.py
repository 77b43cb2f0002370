"""What every model class that reads whole texts in both directions is to the worker."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch

from dougong.models.loadable import LoadableModel


@dataclass(frozen=True, slots=True)
class EncoderStep:
    """Which tokens of a step belong together.

    Attributes:
        query_starts: int32 ``[num_seqs + 1]``: where each sequence begins, then the step's tokens.
        query_starts_cpu: The same on the host.
        longest: Tokens of the longest sequence.
    """

    query_starts: torch.Tensor
    query_starts_cpu: torch.Tensor
    longest: int


class EncoderModel(LoadableModel):
    """A model whose tokens see those after them as well as those before; made as every
    `LoadableModel` is.

    It keeps no keys and values: whole sequences are computed in one step, and there is no next
    token to predict.
    """

    @abstractmethod
    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, step: EncoderStep
    ) -> torch.Tensor:
        """Hidden states of this step's tokens, as the last layer leaves them.

        Args:
            token_ids: int64 ``[num_tokens]``, inside the vocabulary.
            positions: int64 ``[num_tokens]``, from 0 in each sequence.
            step: Which tokens belong together.

        Returns:
            ``[num_tokens, hidden_size]`` in the model's dtype.
        """
