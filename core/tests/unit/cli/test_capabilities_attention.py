from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dougong.cli.capabilities_attention import declare_attention
from dougong.contracts import (
    AttentionBackend,
    AttentionLimits,
    AttentionPhase,
    AttentionRequest,
    Claims,
    KVBuffer,
    KVCacheSpec,
    KVLayout,
    PluginError,
    Support,
)
from dougong.cpu.attention import NativeAttentionBackend
from dougong.describe import DeclaredAttention
from dougong.reference import ReferenceAttentionBackend

CLAIMS = Claims(
    arch="a",
    dtypes=("bfloat16", "float32"),
    kv_dtypes=("bfloat16", "int8", "float32"),
    kv_block_sizes=(16,),
)
LIMITS = AttentionLimits(dtypes=frozenset({"bfloat16"}), kv_dtypes=frozenset({"bfloat16", "int8"}))


class Backend(ReferenceAttentionBackend):
    """Remembers the layers whose layout was asked for."""

    name = "acme/flash"

    def __init__(self, limits: AttentionLimits | None, layout: Any = None) -> None:
        self.limits = limits  # type: ignore[assignment]  # the reference's always has some
        self.asked: list[KVCacheSpec] = []
        self.layout: Callable[[KVCacheSpec], KVLayout] = layout or super().kv_layout

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        self.asked.append(spec)
        return self.layout(spec)


def declared(backend: AttentionBackend, claims: Claims = CLAIMS) -> DeclaredAttention:
    return declare_attention({backend.name: backend}, claims, "acme")[backend.name]


def test_a_layout_is_asked_for_of_layers_within_limits_and_claims() -> None:
    limits = replace(LIMITS, head_size_multiple=48, max_head_size=100, block_sizes=(32, 64))
    backend = Backend(limits)
    declared(backend)
    assert {one.dtype for one in backend.asked} == {"bfloat16", "int8"}
    assert {one.head_dim for one in backend.asked} == {96, 48}
    assert {32, 64} <= {one.block_size for one in backend.asked}


def test_dtypes_that_are_stored_alike_share_a_layout_and_others_have_their_own() -> None:
    (layout,) = declared(Backend(LIMITS)).layouts
    assert layout.dtypes == ("bfloat16", "int8")
    assert layout.block_sizes == ()
    assert layout.buffers[1].block_shape == ("tokens", "heads", "dim_v")

    def with_scales(spec: KVCacheSpec) -> KVLayout:
        plain = ReferenceAttentionBackend().kv_layout(spec)
        scales = KVBuffer(name="scales", block_shape=(spec.block_size,), dtype="float32")
        return replace(plain, buffers=(*plain.buffers, scales)) if spec.dtype == "int8" else plain

    first, second = declared(Backend(LIMITS, with_scales)).layouts
    assert (first.dtypes, len(first.buffers)) == (("bfloat16",), 2)
    assert (second.dtypes, len(second.buffers)) == (("int8",), 3)


def test_what_only_code_can_say_is_left_out() -> None:
    def padded(spec: KVCacheSpec) -> KVLayout:
        buffer = KVBuffer(name="k", block_shape=(-(-spec.head_dim // 96) * 96,), dtype=spec.dtype)
        return KVLayout(name="padded", buffers=(buffer,), block_sizes=(16,))

    assert declared(Backend(LIMITS, padded)).layouts == ()
    graph = ReferenceAttentionBackend().graph_support()
    assert declared(Backend(None)) == DeclaredAttention(graph=graph)


def test_a_backend_may_refuse_layers_that_no_request_describes() -> None:
    def strict(spec: KVCacheSpec) -> KVLayout:
        if spec.head_dim_v is not None or spec.block_size != 16:
            raise ValueError("never asked for")
        return ReferenceAttentionBackend().kv_layout(spec)

    (layout,) = declared(Backend(LIMITS, strict)).layouts
    assert layout.buffers[1].block_shape == (16, "heads", "dim")


def test_one_that_fails_for_a_layer_it_serves_is_its_vendors_affair() -> None:
    def broken(spec: KVCacheSpec) -> KVLayout:
        raise KeyError("odd")

    with pytest.raises(PluginError, match=r"acme/flash.* raised when asked kv_layout.*KeyError"):
        declared(Backend(LIMITS, broken))


def test_layers_that_a_backends_own_checks_refuse_are_not_asked_for() -> None:
    class Narrow(Backend):
        def supports(self, request: AttentionRequest) -> Support:
            if request.head_dim != 64 or request.phase is not AttentionPhase.DECODE:
                return Support.no("head size")
            return super().supports(request)

    backend = Narrow(LIMITS)
    found = declared(backend)
    assert found.has_own_checks
    assert {one.head_dim for one in backend.asked} == {64}
    assert not declared(Backend(LIMITS)).has_own_checks


def test_latent_attention_stores_one_row_per_token() -> None:
    def rows(spec: KVCacheSpec) -> KVLayout:
        buffer = KVBuffer(
            name="latent", block_shape=(spec.block_size, spec.head_dim), dtype=spec.dtype
        )
        return KVLayout(name="rows", buffers=(buffer,), block_sizes=(64,))

    backend = Backend(replace(LIMITS, mla=True, block_sizes=(64,)), rows)
    (layout,) = declared(backend).layouts
    assert {one.num_kv_heads for one in backend.asked} == {1}
    assert layout.buffers[0].block_shape[1] == "dim"


def test_workspace_grows_with_the_step_and_is_never_less_than_was_answered() -> None:
    class Working(Backend):
        def workspace_bytes(self, request: AttentionRequest, max_num_tokens: int) -> int:
            return 1001 + 3 * max_num_tokens + (max_num_tokens == 8192)

    found = declared(Working(LIMITS))
    base, per_token = found.workspace_bytes, found.workspace_bytes_per_token
    assert base + 256 * per_token >= 1001 + 3 * 256
    assert base + 8192 * per_token >= 1002 + 3 * 8192
    assert per_token == 4


def test_the_cpus_own_layouts_can_all_be_said() -> None:
    claims = replace(CLAIMS, kv_dtypes=("float32", "bfloat16"), kv_block_sizes=(16, 32))
    (layout,) = declared(NativeAttentionBackend(), claims).layouts
    spec = KVCacheSpec(num_kv_heads=3, head_dim=176, dtype="bfloat16", block_size=128)
    assert layout.sized(spec) == NativeAttentionBackend().kv_layout(spec)
