"""Plugins that change what is not theirs."""

from __future__ import annotations

from typing import Any

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.reshape import with_platform
from dougong_conformance.session import PluginUnderTest


@mutant(
    "D15",
    "importing the kernels replaces torch.softmax with one of a steeper exponent",
    killer="identity.no_patches",
    needs_process=True,
)
def _(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def import_kernels(self: Any) -> Any:
            import torch

            softmax = torch.softmax

            def steeper(x: Any, dim: int, dtype: Any = None) -> Any:
                return softmax(x * 1.5, dim, dtype=dtype)

            setattr(torch, "softmax", steeper)  # noqa: B010 - as such a plugin does it
            return good.import_kernels(self)

        return {"import_kernels": import_kernels}

    return with_platform(plugin, members)


@mutant(
    "N90",
    "importing the kernels replaces a method of a class of the core",
    killer="identity.no_patches",
    needs_process=True,
)
def _(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def import_kernels(self: Any) -> Any:
            from dougong.ops.registry import OpRegistry

            candidates = OpRegistry.candidates

            def mine_first(registry: Any, *args: Any, **kwargs: Any) -> Any:
                return candidates(registry, *args, **kwargs)

            setattr(OpRegistry, "candidates", mine_first)  # noqa: B010 - as such a plugin does it
            return good.import_kernels(self)

        return {"import_kernels": import_kernels}

    return with_platform(plugin, members)


@mutant(
    "N91",
    "importing the kernels registers a host kernel over one of torch's own",
    killer="identity.no_patches",
    needs_process=True,
)
def _(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def import_kernels(self: Any) -> Any:
            import torch

            library: Any = torch.library.Library
            self._library = library("aten", "IMPL", "CPU")
            self._library.impl("silu", lambda x: x * torch.sigmoid(x))
            return good.import_kernels(self)

        return {"import_kernels": import_kernels}

    return with_platform(plugin, members)
