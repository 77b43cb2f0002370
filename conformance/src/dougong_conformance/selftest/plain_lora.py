"""A LoRA wrapper in plain torch, each step of which can be replaced by a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from dougong.contracts import LoRAWrapper

from dougong_conformance.selftest.changes import with_named_class
from dougong_conformance.session import PluginUnderTest


class PlainLoRA(LoRAWrapper):
    """Right as it is; a mutant overrides one method."""

    def __init__(self) -> None:
        self._indices: torch.Tensor | None = None

    def update_metadata(self, lora_indices: torch.Tensor) -> None:
        """Keep a copy: the buffer belongs to the step."""
        self._indices = lora_indices.clone()

    def add_lora_linear(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        lora_a: torch.Tensor,
        lora_b: torch.Tensor,
        scale: float,
    ) -> None:
        """Each adapter over its own tokens, in float32, added once."""
        indices = self._used()
        for adapter in range(lora_a.shape[0]):
            rows = (indices == adapter).nonzero().flatten()
            if rows.shape[0] == 0:
                continue
            narrow = x[rows].float() @ lora_a[adapter].float().T
            added = self._factor(scale) * (narrow @ lora_b[adapter].float().T)
            out[rows] = (out[rows].float() + added).to(out.dtype)

    def _used(self) -> torch.Tensor:
        if self._indices is None:
            raise RuntimeError("update_metadata was not called for this step")
        return self._indices

    def _factor(self, scale: float) -> float:
        return scale


def with_lora(plugin: PluginUnderTest, **methods: Callable[..., Any]) -> PluginUnderTest:
    """A plugin that names this wrapper, with some methods replaced."""
    cls = type("ChangedLoRA", (PlainLoRA,), {**methods, "__module__": __name__})
    return with_named_class(plugin, "get_punica_wrapper", cls)
