"""Ways to change what a plugin's worker is told in a step, and what it answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dougong_conformance.selftest.reshape import subclass, with_backends, with_worker
from dougong_conformance.session import PluginUnderTest


def with_steps(plugin: PluginUnderTest, change: Any) -> PluginUnderTest:
    """``change(step)`` is what the worker takes instead of a step."""

    def members(good: Any) -> dict[str, Any]:
        def submit(self: Any, step: Any, intermediate: Any = None) -> Any:
            return good.submit(self, change(step), intermediate)

        return {"submit": submit}

    return with_worker(plugin, members)


def with_new(plugin: PluginUnderTest, change: Any) -> PluginUnderTest:
    """``change(request)`` is what the worker takes instead of a new request."""

    def changed(step: Any) -> Any:
        return replace(step, scheduled_new_reqs=[change(one) for one in step.scheduled_new_reqs])

    return with_steps(plugin, changed)


def with_outputs(plugin: PluginUnderTest, change: Any) -> PluginUnderTest:
    """``change(output)`` is what comes back instead of a step's output."""

    class Handle:
        def __init__(self, good: Any) -> None:
            self.good = good

        def result(self, timeout_s: float | None = None) -> Any:
            return change(self.good.result(timeout_s))

    def members(good: Any) -> dict[str, Any]:
        def sample(self: Any, handle: Any, grammar: Any = None) -> Any:
            return Handle(good.sample(self, handle, grammar))

        return {"sample": sample}

    return with_worker(plugin, members)


def with_common(plugin: PluginUnderTest, change: Any) -> PluginUnderTest:
    """``change(common)`` is what every metadata builder gets."""

    def members(good: Any) -> dict[str, Any]:
        def make_builder(self: Any, spec: Any, layout: Any, device: Any) -> Any:
            builder = good.make_builder(self, spec, layout, device)
            builder.__class__ = subclass(
                type(builder),
                lambda cls: {"build": lambda it, common: cls.build(it, change(common))},
            )
            return builder

        return {"make_builder": make_builder}

    return with_backends(plugin, members)


def with_lengths(common: Any, lengths: Any) -> Any:
    """Other lengths, at the same place of the device, where a captured step reads them too."""
    common.seq_lens.copy_(lengths.to(common.seq_lens.device))
    return replace(common, seq_lens_cpu=lengths)
