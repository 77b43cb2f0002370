"""A LoRA wrapper in plain torch, each step of which can be replaced by a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from dougong.contracts import LoRAWrapper

from dougong_conformance.selftest.changes import with_named_class
from dougong_conformance.session import PluginUnderTest


class PlainLoRA(LoRAWrapper):
    """Right as it is; a mutant overrides one method. Nothing waits for the device, so steps may be
    captured."""

    def __init__(
        self, *, max_num_batched_tokens: int, max_loras: int, device: torch.device
    ) -> None:
        super().__init__(
            max_num_batched_tokens=max_num_batched_tokens, max_loras=max_loras, device=device
        )
        self._kept = torch.full((max_num_batched_tokens,), -1, device=device)
        self._num_tokens = 0

    def update_metadata(self, lora_indices: torch.Tensor) -> None:
        """Keep a copy, always at the same place."""
        self._num_tokens = lora_indices.shape[0]
        self._kept[: self._num_tokens].copy_(lora_indices)

    def add_lora_linear(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        lora_a: torch.Tensor,
        lora_b: torch.Tensor,
        scale: float,
    ) -> None:
        """Each adapter for all tokens, in float32, added once where it is a token's own."""
        indices = self._used()
        for adapter in range(lora_a.shape[0]):
            is_own = (indices == adapter).unsqueeze(1)
            narrow = self._narrow(x, lora_a[adapter])
            added = self._factor(scale) * (narrow @ lora_b[adapter].float().T)
            out.copy_(torch.where(is_own, (out.float() + added).to(out.dtype), out))

    def _used(self) -> torch.Tensor:
        return self._kept[: self._num_tokens]

    def _narrow(self, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return x.float() @ a.float().T

    def _factor(self, scale: float) -> float:
        return scale


def with_lora(plugin: PluginUnderTest, **methods: Callable[..., Any]) -> PluginUnderTest:
    """A plugin that names this wrapper, with some methods replaced."""
    cls = type("ChangedLoRA", (PlainLoRA,), {**methods, "__module__": __name__})
    return with_named_class(plugin, "get_punica_wrapper", cls)
