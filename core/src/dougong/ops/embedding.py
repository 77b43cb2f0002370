"""From token ids into the model, and from the model to logits."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong.ops.custom_op import CustomOp


class Embedding(CustomOp):
    """Rows of a table by token id.

    Call: ``(token_ids)`` int64 ``[num_tokens]`` → ``[num_tokens, hidden_size]``. Ids lie inside the
    vocabulary; the front end has checked them.

    Args:
        vocab_size: Rows.
        hidden_size: Columns.
        dtype: Of the table.
    """

    key: ClassVar[str] = "embedding"

    def __init__(self, vocab_size: int, hidden_size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.empty(vocab_size, hidden_size, dtype=dtype), requires_grad=False
        )

    def forward_native(self, token_ids: torch.Tensor) -> torch.Tensor:
        """A gather."""
        return F.embedding(token_ids, self.weight)

    def kernel_args(self) -> tuple[Any, ...]:
        """``(weight,)``."""
        return (self.weight,)


class LMHead(CustomOp):
    """Logits over the vocabulary.

    Call: ``(hidden)`` ``[num_rows, hidden_size]`` → float32 ``[num_rows, vocab_size]``.

    Args:
        vocab_size: Rows of the weight.
        hidden_size: Columns.
        dtype: Of the weight.
        embedding: The table it shares its weight with; ``None``: it has its own.
    """

    key: ClassVar[str] = "lm_head"

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        dtype: torch.dtype,
        embedding: Embedding | None = None,
    ) -> None:
        super().__init__()
        self.embedding: Embedding | None
        # Not a part of the head: the model owns it, and it runs whatever computes the head.
        object.__setattr__(self, "embedding", embedding)
        if embedding is None:
            self.weight: torch.Tensor = nn.Parameter(
                torch.empty(vocab_size, hidden_size, dtype=dtype), requires_grad=False
            )
        else:
            self.weight = embedding.weight

    @property
    def is_tied(self) -> bool:
        """Whether the weight is the embedding's."""
        return self.embedding is not None

    def forward_native(self, hidden: torch.Tensor) -> torch.Tensor:
        """The product in the storage dtype, widened."""
        return F.linear(hidden, self.weight).float()

    def kernel_args(self) -> tuple[Any, ...]:
        """``(weight,)``."""
        return (self.weight,)
