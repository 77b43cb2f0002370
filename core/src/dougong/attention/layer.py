"""The attention layer that models call; its backend and its cache are bound by the worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dougong.attention.outputs import AttentionOutputs
from dougong.contracts import AttentionImpl


@dataclass(slots=True)
class AttentionStep:
    """One step, per KV cache group; made once and passed to every layer.

    Attributes:
        metadata: What each group's builder made.
        slot_mappings: Where each group's new tokens go.
        outputs: Where layers write, in a captured step; ``None``: each into a tensor of its own.
    """

    metadata: Sequence[Any]
    slot_mappings: Sequence[torch.Tensor]
    outputs: AttentionOutputs | None = None


class Attention(nn.Module):
    """Causal attention of one layer over the paged cache.

    Call: ``(q, k, v, step)`` with ``q`` ``[num_tokens, num_heads, head_dim]``, ``k`` and ``v``
    ``[num_tokens, num_kv_heads, head_dim]`` → ``[num_tokens, num_heads * head_dim]``.

    Args:
        layer_index: Position among the model's attention layers.
        num_heads: Query heads on this rank.
        num_kv_heads: KV heads on this rank.
        head_dim: Elements per head.
        scale: Factor of ``q @ k``.
        sliding_window: Tokens a query sees, itself included; ``None``: all.
        soft_cap: Cap on scores; ``None``: none.

    Attributes:
        backends: Name of the backend that is bound, or of a pair's prefill and decode backend;
            empty: none yet.
        group_index: KV cache group whose metadata it reads.
        kv_cache: Its buffers, once the worker allocated them.
        has_sinks: A learned logit per head joins the softmax. This and the next three are for
            derived classes, which hand such things to their backends.
        head_dim_v: Elements of a head of ``v``; ``None``: ``head_dim``.
        kv_lora_rank: Of latent attention; ``None``: it is plain attention.
        rope_head_dim: Rotated part of a latent head; ``None``: it is plain attention.
    """

    has_sinks: bool = False
    head_dim_v: int | None = None
    kv_lora_rank: int | None = None
    rope_head_dim: int | None = None

    def __init__(
        self,
        layer_index: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        scale: float,
        sliding_window: int | None = None,
        soft_cap: float | None = None,
    ) -> None:
        super().__init__()
        self.layer_index = layer_index
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.scale = scale
        self.sliding_window = sliding_window
        self.soft_cap = soft_cap
        self.backends: tuple[str, ...] = ()
        self.group_index = 0
        self.kv_cache: Sequence[torch.Tensor] = ()
        self._impl: AttentionImpl | None = None

    @property
    def impl(self) -> AttentionImpl:
        """Who computes; `bind_backend` was called before."""
        assert self._impl is not None, "the worker binds a backend before the first step"
        return self._impl

    def bind_backend(self, backends: tuple[str, ...], impl: AttentionImpl) -> None:
        """Compute with ``impl`` from now on, made by the backend or the pair so named."""
        self.backends = backends
        self._impl = impl

    def bind_cache(self, group_index: int, kv_cache: Sequence[torch.Tensor]) -> None:
        """Use these buffers, and this group's metadata, from now on."""
        self.group_index = group_index
        self.kv_cache = kv_cache

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, step: AttentionStep
    ) -> torch.Tensor:
        """Write this step's keys and values, then attend. Hooks of ``nn.Module`` are not run."""
        impl, group = self._impl, self.group_index
        assert impl is not None, "the worker binds a backend before the first step"
        impl.write_kv(k, v, self.kv_cache, step.slot_mappings[group])
        if step.outputs is None:
            out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        else:
            out = step.outputs.of_layer(self.layer_index, q)
        impl.forward(q, k, v, self.kv_cache, step.metadata[group], out)
        return out.view(out.shape[0], -1)
