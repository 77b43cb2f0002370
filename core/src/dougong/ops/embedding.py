"""From token ids into the model, and from the model to logits."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import filled, seeded
from dougong.ops.stored_weight import STORED_FORMATS, empty_stored, plain_rows
from dougong.ops.weight_format import format_of


class Embedding(CustomOp):
    """Rows of a table by token id.

    Call: ``(token_ids)`` int64 ``[num_tokens]`` → ``[num_tokens, hidden_size]``. Ids lie inside the
    vocabulary; the front end has checked them.

    Args:
        vocab_size: Rows.
        hidden_size: Columns.
        dtype: Of the table.

    Attributes:
        head: The head that shares the table; ``None``: none does.
    """

    key: ClassVar[str] = "embedding"
    property_names: ClassVar[tuple[str, ...]] = (
        "vocab_size",
        "hidden_size",
        "is_tied",
        "weight_format",
    )
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("weight",)

    def __init__(self, vocab_size: int, hidden_size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.dtype = dtype
        self.weight_format = format_of(dtype)
        self.head: LMHead | None
        _refer(self, "head", None)
        self.weight = nn.Parameter(
            torch.empty(vocab_size, hidden_size, dtype=dtype), requires_grad=False
        )

    @property
    def is_tied(self) -> bool:
        """Whether a head computes with the same weight."""
        return self.head is not None

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three tokens, one of them twice."""
        return filled(cls(32, 24, torch.float32)), (torch.tensor([31, 0, 31]),)

    def store_as(self, weight_format: str) -> None:
        """See `Linear.store_as`; a head that shares the table has it so, too."""
        self.weight = empty_stored(self.weight, weight_format)
        self.weight_format = weight_format
        if self.head is not None:
            self.head.weight, self.head.weight_format = self.weight, weight_format

    def forward_native(self, token_ids: torch.Tensor) -> torch.Tensor:
        """A gather; stored rows become numbers after it."""
        rows = F.embedding(token_ids, self.weight)
        if self.weight_format in STORED_FORMATS:
            return plain_rows(rows, self.weight_format, self.dtype)
        return rows

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
        embedding: The table it shares its weight with, whose `Embedding.head` it becomes; ``None``:
            it has its own.
    """

    key: ClassVar[str] = "lm_head"
    property_names: ClassVar[tuple[str, ...]] = (
        "vocab_size",
        "hidden_size",
        "is_tied",
        "weight_format",
    )
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("weight",)

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        dtype: torch.dtype,
        embedding: Embedding | None = None,
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.weight_format = format_of(dtype)
        self.embedding: Embedding | None
        _refer(self, "embedding", embedding)
        if embedding is None:
            self.weight: torch.Tensor = nn.Parameter(
                torch.empty(vocab_size, hidden_size, dtype=dtype), requires_grad=False
            )
        else:
            self.weight = embedding.weight
            _refer(embedding, "head", self)

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows and a head of its own."""
        return filled(cls(32, 24, torch.float32)), (seeded(3, 24),)

    @property
    def is_tied(self) -> bool:
        """Whether the weight is the embedding's."""
        return self.embedding is not None

    def store_as(self, weight_format: str) -> None:
        """See `Linear.store_as`; a table that it shares is stored so, too."""
        if self.embedding is not None:
            self.embedding.store_as(weight_format)
            return
        self.weight = empty_stored(self.weight, weight_format)
        self.weight_format = weight_format

    def forward_native(self, hidden: torch.Tensor) -> torch.Tensor:
        """The product in the storage dtype, widened."""
        if self.weight_format in STORED_FORMATS:
            weight = plain_rows(self.weight, self.weight_format, hidden.dtype)
            return F.linear(hidden, weight).float()
        return F.linear(hidden, self.weight).float()

    def kernel_args(self) -> tuple[Any, ...]:
        """``(weight,)``."""
        return (self.weight,)


def _refer(op: CustomOp, name: str, other: CustomOp | None) -> None:
    """Point to another op without owning it: the model does, and it runs whatever this one does."""
    object.__setattr__(op, name, other)
