"""Broken adapters, on a wrapper in plain torch: no platform of the core brings one."""

from __future__ import annotations

from typing import Any

import torch

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.plain_lora import PlainLoRA, with_lora
from dougong_conformance.session import PluginUnderTest


@mutant("L01", "all tokens use the first token's adapter", killer="lora.mixed_batch")
def _l01(plugin: PluginUnderTest) -> PluginUnderTest:
    def used(self: Any) -> torch.Tensor:
        indices = PlainLoRA._used(self)
        return indices[:1].expand(indices.shape[0]).contiguous()

    return with_lora(plugin, _used=used)


@mutant("L02", "-1 counts as adapter 0", killer="lora.mixed_batch")
def _l02(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_lora(plugin, _used=lambda self: PlainLoRA._used(self).clamp(min=0))


@mutant("L03", "the scale is applied twice", killer="lora.scaling")
def _l03(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_lora(plugin, _factor=lambda self, scale: scale * scale)


@mutant("L04", "adapters of the step before stay where none is asked for", killer="lora.updates")
def _l04(plugin: PluginUnderTest) -> PluginUnderTest:
    def update_metadata(self: Any, lora_indices: torch.Tensor) -> None:
        old = self._indices
        if old is None or old.shape != lora_indices.shape:
            old = lora_indices
        self._indices = torch.where(lora_indices < 0, old, lora_indices)

    return with_lora(plugin, update_metadata=update_metadata)
