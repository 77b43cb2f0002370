"""Layers a vendor may own whole: linear methods, experts, LoRA.

Of these the core of contract 1.0 calls `LoRAWrapper` alone: it computes no quantized weight in its
stored form and has no model with experts. The shapes are fixed so that plugins can be written.
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

    Named ``punica`` in `Platform.get_punica_wrapper`, as plugin authors know it. One is made for
    each rank that takes adapters. The core owns the adapters' memory: every slot has its place in
    ``lora_a`` and ``lora_b`` of each projection, smaller ranks are filled up with zeros, each
    adapter's own scale is multiplied into its ``lora_b`` when it is loaded, and slots without an
    adapter hold zeros, so every number in them is finite.

    Args:
        max_num_batched_tokens: Tokens of a step at most, padding included.
        max_loras: Slots.
        device: Of every tensor.
    """

    def __init__(
        self, *, max_num_batched_tokens: int, max_loras: int, device: torch.device
    ) -> None:
        """Keep the sizes, and make what every step needs."""
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_loras = max_loras
        self.device = device

    @abstractmethod
    def update_metadata(self, lora_indices: torch.Tensor) -> None:
        """Once per step, before its first `add_lora_linear`, and never inside a capture.

        What it writes for a captured step must lie where it lay for that number of tokens when the
        step was captured: a replay reads it there.

        Args:
            lora_indices: int64 ``[num_tokens]``: each token's slot; ``-1`` means no adapter, as
                padding has it. Valid until the next call, always in the same memory.
        """

    @abstractmethod
    def add_lora_linear(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        lora_a: torch.Tensor,
        lora_b: torch.Tensor,
        scale: float,
    ) -> None:
        """``out += scale * x @ A.T @ B.T`` per token, in place; rows without an adapter stay.

        May be captured, so it waits for no number from the device.

        Args:
            out: ``[num_tokens, out_features]``; may be some columns of a wider tensor, with the
                last axis contiguous.
            x: ``[num_tokens, in_features]`` in the dtype of ``out``; not changed.
            lora_a: ``[max_loras, rank, in_features]``, contiguous, in the same dtype.
            lora_b: ``[max_loras, out_features, rank]``, stored with the rows of each ``B.T`` one
                after the other: strides ``(rank * out_features, 1, out_features)``.
            scale: Of all adapters of the call, beside what is in ``lora_b`` already; the core
                passes 1.
        """
