"""Plugins that give the right answers, and stand in their own way."""

from __future__ import annotations

import time
from typing import Any

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.mutants.streams import _Event, _with_events
from dougong_conformance.selftest.reshape import (
    subclass,
    with_kernel,
    with_named_class,
    with_worker,
)
from dougong_conformance.session import PluginUnderTest


def _rms_norm(x: Any, weight: Any, eps: float) -> Any:
    import torch

    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight


@mutant(
    "S05", "every kernel waits until it has run", killer="performance.ops_do_not_wait", mode="lazy"
)
def s05(plugin: PluginUnderTest) -> PluginUnderTest:
    def rms_norm(x: Any, weight: Any, eps: float) -> Any:
        import torch

        result = _rms_norm(x, weight, eps)
        torch.accelerator.synchronize()
        return result

    return with_kernel(plugin, "rms_norm", rms_norm)


@mutant(
    "S08",
    "an event's time is that of the launch alone",
    killer="performance.clocks_agree",
    mode="lazy",
)
def s08(plugin: PluginUnderTest) -> PluginUnderTest:
    class Launch(_Event):
        at = 0.0

        def record(self, stream: Any = None) -> None:
            self.at = time.perf_counter()
            super().record(stream)

        def elapsed_time(self, other: Any) -> float:
            return max(1e-6, float(other.at - self.at) * 1e3)

    return _with_events(plugin, Launch)


@mutant(
    "N59",
    "the worker waits for the device before it returns a step",
    killer="performance.steps_do_not_wait",
    mode="lazy",
)
def n59(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def sample(self: Any, handle: Any, grammar: Any = None) -> Any:
            done = good.sample(self, handle, grammar)
            self.context.platform.runtime.synchronize()
            return done

        return {"sample": sample}

    return with_worker(plugin, members)


@mutant(
    "N60",
    "a number is read from the device in every step",
    killer="performance.no_hidden_waits",
    mode="lazy",
)
def n60(plugin: PluginUnderTest) -> PluginUnderTest:
    def linear(x: Any, weight: Any, bias: Any) -> Any:
        import torch

        y = torch.nn.functional.linear(x, weight, bias)
        return y if y.flatten()[0].item() < 1e30 else y.clamp(max=1e30)

    return with_kernel(_eagerly(plugin), "linear", linear)


@mutant(
    "N61",
    "an op computes on the host and copies its result back",
    killer="performance.no_hidden_host_copies",
)
def n61(plugin: PluginUnderTest) -> PluginUnderTest:
    def linear(x: Any, weight: Any, bias: Any) -> Any:
        import torch

        on_host: list[Any] = [None if one is None else one.cpu() for one in (x, weight, bias)]
        return torch.nn.functional.linear(*on_host).to(x.device)

    return with_kernel(_eagerly(plugin), "linear", linear)


def _eagerly(plugin: PluginUnderTest) -> PluginUnderTest:
    """Without graphs, which would refuse the defect when they are captured."""
    from dougong_conformance.selftest.reshape import with_claims, with_platform

    changed = with_claims(plugin, lambda _told: {"graph_capture": False})
    return with_platform(changed, lambda _good: {"get_graph_runner_cls": lambda self: None})


@mutant(
    "N62",
    "a kernel is compiled anew for every number of rows",
    killer="performance.no_recompilation",
)
def n62(plugin: PluginUnderTest) -> PluginUnderTest:
    seen: set[int] = set()

    def rms_norm(x: Any, weight: Any, eps: float) -> Any:
        if x.shape[0] not in seen:
            seen.add(x.shape[0])
            if len(seen) > 3:  # those of the warm-up are ready
                time.sleep(0.35)
        return _rms_norm(x, weight, eps)

    return with_kernel(_eagerly(plugin), "rms_norm", rms_norm)


@mutant(
    "N63",
    "replaying a graph takes far longer than its work",
    killer="performance.graphs_are_no_slower",
)
def n63(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def replay(self: Any, key: Any) -> None:
            time.sleep(0.12)
            good.replay(self, key)

        return {"replay": replay}

    return with_named_class(plugin, "get_graph_runner_cls", lambda good: subclass(good, members))


@mutant(
    "N64",
    "launches run to their end while asynchronous execution is claimed",
    killer="performance.launch_returns_early",
)
def n64(plugin: PluginUnderTest) -> PluginUnderTest:
    from dougong_conformance.selftest.reshape import with_claims

    # The base runs eagerly here, as with a switch for debugging that was left on.
    return with_claims(plugin, lambda _told: {"async_execution": True})


@mutant(
    "N69",
    "an operator falls back to the host below torch's dispatcher",
    killer="performance.no_silent_fallback",
)
def n69(plugin: PluginUnderTest) -> PluginUnderTest:
    def linear(x: Any, weight: Any, bias: Any) -> Any:
        import torch

        # What torch's own fallback for devices does.
        on_host = torch.ops.aten._to_cpu([x, weight])
        y = torch.nn.functional.linear(*on_host).to(x.device)
        return y if bias is None else y + bias

    return with_kernel(_eagerly(plugin), "linear", linear)
