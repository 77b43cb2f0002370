"""Broken adapters, on a wrapper in plain torch."""

from __future__ import annotations

from typing import Any

import torch

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.plain_lora import PlainLoRA, with_lora
from dougong_conformance.session import PluginUnderTest

_TILE = 16


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
        kept = self._kept[: lora_indices.shape[0]]
        self._num_tokens = lora_indices.shape[0]
        kept.copy_(torch.where(lora_indices < 0, kept, lora_indices))

    return with_lora(plugin, update_metadata=update_metadata)


@mutant("L05", "of a rank only the first sixteen are multiplied", killer="lora.shapes")
def _l05(plugin: PluginUnderTest) -> PluginUnderTest:
    def narrow(self: Any, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        found = PlainLoRA._narrow(self, x, a)
        found[:, _TILE:] = 0
        return found

    return with_lora(plugin, _narrow=narrow)


@mutant("L06", "rows of the output are taken to lie one behind the other", killer="lora.in_place")
def _l06(plugin: PluginUnderTest) -> PluginUnderTest:
    def add(self: Any, out: torch.Tensor, *rest: Any) -> None:
        strides = (out.shape[1], 1)
        PlainLoRA.add_lora_linear(self, out.as_strided(out.shape, strides), *rest)

    return with_lora(plugin, add_lora_linear=add)


@mutant("L07", "slots are counted among those that the step uses", killer="lora.other_slots")
def _l07(plugin: PluginUnderTest) -> PluginUnderTest:
    def used(self: Any) -> torch.Tensor:
        indices = PlainLoRA._used(self)
        slots = torch.arange(self.max_loras, device=indices.device)
        is_there = (indices.unsqueeze(1) == slots).any(dim=0).to(torch.int64)
        place = torch.cumsum(is_there, dim=0) - 1
        return torch.where(indices < 0, indices, place[indices.clamp(min=0)])

    return with_lora(plugin, _used=used)


@mutant(
    "L08", "a captured step keeps the adapters that it was captured with", killer="lora.replays"
)
def _l08(plugin: PluginUnderTest) -> PluginUnderTest:
    def update_metadata(self: Any, lora_indices: torch.Tensor) -> None:
        self._num_tokens = lora_indices.shape[0]
        self.__dict__.setdefault("_earlier", []).append(self._kept)
        self._kept = torch.full_like(self._kept, -1)
        self._kept[: self._num_tokens].copy_(lora_indices)

    return with_lora(plugin, update_metadata=update_metadata)
