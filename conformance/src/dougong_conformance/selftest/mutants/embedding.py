"""Plugins whose engine gives other vectors than the checkpoint says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.steps import with_outputs
from dougong_conformance.session import PluginUnderTest


@mutant("E11", "texts of one step get one another's vectors", killer="engine.embeddings")
def e11(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(output: Any) -> Any:
        names = list(output.pooled)
        turned = dict(zip(names, [output.pooled[name] for name in reversed(names)], strict=True))
        return replace(output, pooled=turned)

    return with_outputs(plugin, change)


@mutant(
    "E12",
    "vectors are normalised though the checkpoint leaves them as they are",
    killer="engine.decoder_embeddings",
)
def e12(plugin: PluginUnderTest) -> PluginUnderTest:
    def normalised(vector: list[float]) -> list[float]:
        length = sum(one * one for one in vector) ** 0.5
        return [one / length for one in vector]

    def change(output: Any) -> Any:
        pooled = {name: normalised(vector) for name, vector in output.pooled.items()}
        return replace(output, pooled=pooled)

    return with_outputs(plugin, change)
