"""Plugins that are not who they say, or cannot do what they claim.

Nothing at the head of this file imports torch: children that only discover load it.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import replace
from typing import Any

from dougong.contracts import QuantizationSupport

from dougong_conformance.selftest.mutant import mutant
from dougong_conformance.selftest.reshape import (
    subclass,
    with_claims,
    with_descriptor,
    with_kernel,
    with_named_class,
    with_platform,
    with_runtime,
)
from dougong_conformance.session import PluginUnderTest


@mutant("D04", "every device has the same uuid", killer="identity.uuid_is_unique")
def d04(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_runtime(plugin, lambda _good: {"device_uuid": lambda self, index: "0000-0000"})


@mutant(
    "D06",
    "a dtype is claimed in which nothing computes",
    killer="identity.claimed_dtypes_compute",
    dtype="float8_e4m3fn",
)
def d06(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_claims(plugin, lambda told: {"dtypes": (*told.dtypes, "float8_e4m3fn")})


@mutant(
    "D08",
    "float64, which is not claimed, is computed in bfloat16 without a word",
    killer="identity.unclaimed_is_refused_or_right",
)
def d08(plugin: PluginUnderTest) -> PluginUnderTest:
    import torch

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if x.dtype is not torch.float64:
            return torch.nn.functional.linear(x, weight, bias)
        return torch.nn.functional.linear(x.bfloat16(), weight.bfloat16()).double()

    return with_kernel(plugin, "linear", linear)


@mutant("D09", "the communicator lacks all_reduce", killer="identity.api_is_complete")
def d09(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_named_class(plugin, "get_device_communicator_cls", _lacking("all_reduce"))


@mutant("N42", "the worker lacks a method of its contract", killer="identity.api_is_complete")
def n42(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_named_class(plugin, "get_worker_cls", _lacking("health"))


def _lacking(name: str) -> Any:
    """Makes a class that lacks a method which its contract requires."""

    def missing(self: Any, *args: Any) -> Any:
        """Nobody wrote it."""

    return lambda good: subclass(good, lambda _good: {name: abstractmethod(missing)})


@mutant("D12", "a method takes other arguments than its contract", killer="identity.signatures_fit")
def d12(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def memory_info(self: Any) -> Any:
            return good.memory_info(self, 0)

        return {"memory_info": memory_info}

    return with_runtime(plugin, members)


@mutant("N20", "a method's name is misspelt", killer="identity.no_unknown_override")
def n20(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(_good: Any) -> dict[str, Any]:
        def get_graph_runer_cls(self: Any) -> str | None:
            return None

        return {"get_graph_runer_cls": get_graph_runer_cls}

    return with_platform(plugin, members)


@mutant(
    "N21",
    "requires_contract takes every later contract",
    killer="identity.contract_range_is_bounded",
)
def n21(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_descriptor(plugin, requires_contract=">=1.0")


@mutant(
    "N22", "the dispatch key is one that torch does not know", killer="identity.names_are_known"
)
def n22(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_platform(plugin, lambda _good: {"dispatch_key": "PrivateUse9"})


@mutant(
    "N23",
    "claims are put together in a place that all threads share",
    killer="identity.queries_are_thread_safe",
)
def n23(plugin: PluginUnderTest) -> PluginUnderTest:
    shared: dict[str, Any] = {}

    def members(good: Any) -> dict[str, Any]:
        def claims(self: Any, arch: str) -> Any:
            shared["claims"] = good.claims(self, arch)
            time.sleep(0.0002)  # other threads ask meanwhile
            return shared["claims"]

        return {"claims": claims}

    return with_platform(plugin, members)


@mutant(
    "N24",
    "a dtype of the KV cache is claimed that no backend stores",
    killer="identity.kv_claims_are_served",
)
def n24(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_claims(plugin, lambda told: {"kv_dtypes": (*told.kv_dtypes, "int8")})


@mutant(
    "N25",
    "a block size is claimed that no backend takes",
    killer="identity.kv_claims_are_served",
)
def n25(plugin: PluginUnderTest) -> PluginUnderTest:
    def change(told: Any) -> dict[str, Any]:
        return {"kv_block_sizes": (*told.kv_block_sizes, 12345)}

    def limited(good: Any) -> dict[str, Any]:
        return {
            "get_attn_backends": lambda self: dict(list(good.get_attn_backends(self).items())[:1])
        }

    return with_platform(with_claims(plugin, change), limited)


@mutant("N26", "capture is claimed and there is no runner", killer="identity.graph_claim_is_served")
def n26(plugin: PluginUnderTest) -> PluginUnderTest:
    changed = with_claims(plugin, lambda _told: {"graph_capture": True})
    return with_platform(changed, lambda _good: {"get_graph_runner_cls": lambda self: None})


@mutant(
    "N27",
    "collectives are claimed without a backend of torch.distributed",
    killer="identity.collective_claims_are_served",
)
def n27(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_platform(plugin, lambda _good: {"dist_backend": ""})


@mutant(
    "N28",
    "a weight format names a kernel that nothing registers",
    killer="identity.quantization_claims_are_served",
)
def n28(plugin: PluginUnderTest) -> PluginUnderTest:
    unseen = QuantizationSupport(
        format="q4_1",
        storage="uint8",
        activation_dtypes=("float32",),
        is_native=True,
        kernel="mutant/q4_1",
    )
    return with_claims(plugin, lambda told: {"quantization": (*told.quantization, unseen)})


@mutant(
    "N29",
    "a backend of torch.compile is claimed that torch does not know",
    killer="identity.compile_backends_exist",
)
def n29(plugin: PluginUnderTest) -> PluginUnderTest:
    return with_claims(plugin, lambda _told: {"compile_backends": ("mutant-compiler",)})


@mutant("N30", "facts speak of device 0, whichever was asked for", killer="identity.answers_agree")
def n30(plugin: PluginUnderTest) -> PluginUnderTest:
    def members(good: Any) -> dict[str, Any]:
        def facts(self: Any, device_index: int) -> Any:
            told = good.facts(self, 0)
            return told if device_index else replace(told, arch=f"{told.arch}-rev2")

        return {"facts": facts}

    return with_platform(plugin, members)
