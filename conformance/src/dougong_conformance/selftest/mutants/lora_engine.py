"""Plugins whose engine puts adapters where they do not belong, or leaves them there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.reshape import with_worker
from dougong_conformance.selftest.steps import with_new
from dougong_conformance.session import PluginUnderTest


def _with_slots(plugin: PluginUnderTest, change: Any) -> PluginUnderTest:
    """``change(set_lora, worker, slot, weights)`` in the place of the worker's ``set_lora``."""

    def members(good: Any) -> dict[str, Any]:
        def set_lora(self: Any, slot: int, weights: Any) -> None:
            change(lambda *given: good.set_lora(self, *given), self, slot, weights)

        return {"set_lora": set_lora}

    return with_worker(plugin, members)


@mutant(
    "E09",
    "of projections that share a product only the first has its adapter",
    killer="engine.lora_equals_merged",
)
def e09(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(good: Any, worker: Any, slot: int, weights: Any) -> None:
        if weights is not None:
            lost = ("k_proj", "v_proj", "up_proj")
            pairs = {name: one for name, one in weights.pairs.items() if not name.endswith(lost)}
            weights = replace(weights, pairs=pairs)
        good(slot, weights)

    return _with_slots(plugin, change)


@mutant(
    "E10",
    "a request whose prompt is cached goes on without its adapter",
    killer="engine.lora_prefix_cache",
)
def e10(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(request: Any) -> Any:
        return replace(request, lora_slot=-1) if request.num_computed_tokens else request

    return with_new(plugin, change)


@mutant("L09", "unloading takes the adapter out of the model's own weights", killer="lora.unload")
def l09(plugin: PluginUnderTest) -> PluginUnderTest:
    held: dict[int, Any] = {}

    def change(good: Any, worker: Any, slot: int, weights: Any) -> None:
        good(slot, weights)
        old = held.pop(slot, None)
        if weights is not None:
            held[slot] = weights
        elif old is not None:
            targets = worker._loaded.model.weight_targets()
            for name, pair in old.pairs.items():
                if name.endswith("o_proj"):  # the one that is whole in its product
                    weight = targets[f"{name}.weight"].parameter
                    weight.data.sub_((pair.b @ pair.a).to(weight.device, weight.dtype))

    return _with_slots(plugin, change)


@mutant(
    "L10", "projections that an adapter leaves out keep the last one's", killer="lora.slot_reuse"
)
def l10(plugin: PluginUnderTest) -> PluginUnderTest:
    held: dict[int, Any] = {}

    def change(good: Any, worker: Any, slot: int, weights: Any) -> None:
        if weights is not None:
            old = held.get(slot, weights)
            weights = replace(
                weights, rank=max(weights.rank, old.rank), pairs={**old.pairs, **weights.pairs}
            )
            held[slot] = weights
        good(slot, weights)

    return _with_slots(plugin, change)
