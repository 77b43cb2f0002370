"""What encoders of BERT's kind compute beside products and attention.

Neither is in the catalogue: a gather and a sum, which nobody has asked to replace. A plan names
them all the same, and they run natively everywhere; the norm inside is the op ``layer_norm``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import filled, seeded
from dougong.ops.layer_norm import LayerNorm


class AddLayerNorm(CustomOp):
    """``layer_norm(x + residual)``: a norm after a half-layer.

    Call: ``(x, residual)``, both ``[num_tokens, hidden_size]`` → the same shape and dtype. Its part
    ``norm`` is an op of its own, `LayerNorm`, which holds weight and bias.

    Args:
        hidden_size: Length of the last axis.
        eps: Added to the variance.
        dtype: Of weight and bias.
    """

    key: ClassVar[str] = "add_layer_norm"
    property_names: ClassVar[tuple[str, ...]] = ("hidden_size",)
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("weight", "bias", "eps")

    def __init__(self, hidden_size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.norm = LayerNorm(hidden_size, eps, dtype)

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three rows."""
        return filled(cls(24, 1e-5, torch.float32)), (seeded(3, 24), seeded(3, 24, seed=1))

    def forward_native(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """The sum is rounded to the storage dtype."""
        return self.norm(x + residual)  # type: ignore[no-any-return]  # an op gives Any

    def kernel_args(self) -> tuple[Any, ...]:
        """``(weight, bias, eps)``."""
        return self.norm.kernel_args()


class EncoderEmbedding(CustomOp):
    """``words[token_ids] + types[0] + positions[first_position + positions]``: texts are of one
    segment, so every token has the first type.

    Call: ``(token_ids, positions)``, int64 ``[num_tokens]`` each → ``[num_tokens, hidden_size]``.

    Args:
        vocab_size: Rows of the words' table.
        num_positions: Rows of the positions' table.
        num_types: Rows of the types' table.
        hidden_size: Columns of all three.
        dtype: Of all three.
        first_position: Row of the positions' table that a text's first token has.
    """

    key: ClassVar[str] = "encoder_embedding"
    property_names: ClassVar[tuple[str, ...]] = ("vocab_size", "hidden_size")
    kernel_arg_names: ClassVar[tuple[str, ...]] = (
        "words",
        "position_table",
        "types",
        "first_position",
    )

    def __init__(
        self,
        vocab_size: int,
        num_positions: int,
        num_types: int,
        hidden_size: int,
        dtype: torch.dtype,
        first_position: int = 0,
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.first_position = first_position
        self.words, self.position_table, self.types = (
            nn.Parameter(torch.empty(rows, hidden_size, dtype=dtype), requires_grad=False)
            for rows in (vocab_size, num_positions, num_types)
        )

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three tokens of two texts."""
        op = filled(cls(32, 8, 2, 24, torch.float32, 2))
        return op, (torch.tensor([31, 0, 31]), torch.tensor([0, 1, 0]))

    def forward_native(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Words and types first, as `transformers` adds them."""
        places = F.embedding(positions + self.first_position, self.position_table)
        return F.embedding(token_ids, self.words) + self.types[0] + places

    def kernel_args(self) -> tuple[Any, ...]:
        """``(words, position_table, types, first_position)``."""
        return self.words, self.position_table, self.types, self.first_position
