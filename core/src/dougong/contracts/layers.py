"""Layers a vendor may own whole: linear methods, experts, LoRA.

In contract 1.0 the core calls none of them yet: it computes no quantized weight in its stored form,
has no model with experts and no adapters. The shapes are fixed so that plugins can be written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn


class LinearMethod(ABC):
    """How a linear layer stores its weight and multiplies by it.

    Order of calls: `create_weights` when the layer is built, `transform_weight` for each tensor the
    checkpoint brings, `post_load` once after loading and again after a wake, `apply` in every step.
    """

    @abstractmethod
    def create_weights(
        self, layer: nn.Module, in_features: int, out_features: int, dtype: torch.dtype
    ) -> None:
        """Register parameters on ``layer``: ``weight`` ``[out_features, in_features]`` or the
        method's own."""

    def transform_weight(self, layer: nn.Module, name: str, loaded: torch.Tensor) -> torch.Tensor:
        """The tensor to copy into parameter ``name``; by default ``loaded`` itself."""
        return loaded

    @abstractmethod
    def post_load(self, layer: nn.Module) -> None:
        """Pack, transpose or quantise once every weight is there. Idempotent."""

    @abstractmethod
    def apply(self, layer: nn.Module, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """``x @ weight.T + bias`` for ``x`` ``[num_tokens, in_features]``; no look-up, no log."""


class MoEBackend(ABC):
    """Mixture of experts in four parts, so that a vendor can own any of them."""

    @abstractmethod
    def prepare(self, layer: nn.Module) -> None:
        """Once, after loading: pack the experts' weights."""

    @abstractmethod
    def dispatch(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor) -> Any:
        """Bring tokens to the ranks of their experts.

        Args:
            x: ``[num_tokens, hidden_size]``.
            topk_ids: int64 ``[num_tokens, top_k]``.
            topk_weights: float32 ``[num_tokens, top_k]``.
        """

    @abstractmethod
    def experts(self, layer: nn.Module, dispatched: Any) -> Any:
        """Each local expert over its tokens."""

    @abstractmethod
    def combine(self, computed: Any) -> torch.Tensor:
        """Weighted sum per token, back on its rank: ``[num_tokens, hidden_size]``."""


class LoRAWrapper(ABC):
    """Low-rank adapters over a batch in which each token may use another one.

    Named ``punica`` in `Platform.get_punica_wrapper`, as plugin authors know it.
    """

    @abstractmethod
    def update_metadata(self, lora_indices: torch.Tensor) -> None:
        """Once per step: int64 ``[num_tokens]``; ``-1`` means no adapter."""

    @abstractmethod
    def add_lora_linear(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        lora_a: torch.Tensor,
        lora_b: torch.Tensor,
        scale: float,
    ) -> None:
        """``out += scale * x @ A.T @ B.T`` per token, in place.

        Args:
            out: ``[num_tokens, out_features]``.
            x: ``[num_tokens, in_features]``.
            lora_a: ``[num_adapters, rank, in_features]``.
            lora_b: ``[num_adapters, out_features, rank]``.
            scale: Of all adapters of the call.
        """
