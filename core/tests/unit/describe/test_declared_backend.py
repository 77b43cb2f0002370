from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dougong.contracts import (
    AttentionLimits,
    AttentionRequest,
    Claims,
    GraphLevel,
    GraphSupport,
    KVCacheSpec,
    UnsupportedError,
)
from dougong.describe import DeclaredAttention, DeclaredBackend, DeclaredBuffer, DeclaredLayout

CLAIMS = Claims(
    arch="a",
    dtypes=("bfloat16",),
    kv_block_sizes=(64, 32),
    kv_alignment_bytes=512,
    slot_dtype="int32",
)
LIMITS = AttentionLimits(dtypes=frozenset({"bfloat16"}), max_head_size=128)
REQUEST = AttentionRequest(
    num_heads=8, num_kv_heads=2, head_dim=64, dtype="bfloat16", kv_dtype="bfloat16"
)
SPEC = KVCacheSpec(num_kv_heads=2, head_dim=64, head_dim_v=32, dtype="bfloat16", block_size=64)


def backend(declared: DeclaredAttention) -> DeclaredBackend:
    return DeclaredBackend("acme/flash", declared, CLAIMS)


def test_it_answers_as_its_limits_say() -> None:
    features = frozenset({"acme.wide"})
    declared = backend(DeclaredAttention(limits=LIMITS, library="acme-kernels", features=features))
    assert declared.features == features
    assert declared.supports(REQUEST)
    refused = declared.supports(replace(REQUEST, head_dim=256))
    assert refused.reason == "head size 256; takes at most 128"
    assert (declared.name, declared.library) == ("acme/flash", "acme-kernels")


def test_without_limits_it_says_no_and_why() -> None:
    assert "states no limits" in backend(DeclaredAttention()).supports(REQUEST).reason


def test_its_layout_has_what_the_device_claims() -> None:
    layout = backend(DeclaredAttention(limits=LIMITS)).kv_layout(SPEC)
    assert layout.name == "acme/flash"
    assert (layout.block_sizes, layout.slot_dtype) == ((64, 32), "int32")
    assert layout.alignment_bytes == 512
    assert layout.block_bytes == (64 * 2 * 64 + 64 * 2 * 32) * 2


def test_its_own_block_sizes_go_before_the_claims() -> None:
    limits = replace(LIMITS, block_sizes=(16,))
    assert backend(DeclaredAttention(limits=limits)).kv_layout(SPEC).block_sizes == (16,)


def test_what_a_file_states_of_its_layout_goes_before_what_is_claimed() -> None:
    buffer = DeclaredBuffer(name="k", block_shape=("heads", "tokens", "dim"))
    layout = DeclaredLayout(name="blocked", buffers=(buffer,), dtypes=("bfloat16",))
    one, other = (
        DeclaredBackend(name, DeclaredAttention(limits=LIMITS, layouts=(layout,)), CLAIMS)
        for name in ("acme/a", "acme/b")
    )
    assert one.kv_layout(SPEC) == other.kv_layout(SPEC)
    assert one.kv_layout(SPEC).buffers[0].block_shape == (2, 64, 64)
    assert one.kv_layout(SPEC).alignment_bytes == 1
    assert one.kv_layout(replace(SPEC, dtype="int8")).name == "acme/a"


def test_workspace_and_graphs_are_as_stated() -> None:
    graph = GraphSupport(GraphLevel.DECODE)
    declared = backend(
        DeclaredAttention(workspace_bytes=100, workspace_bytes_per_token=3, graph=graph)
    )
    assert declared.workspace_bytes(REQUEST, 10) == 130
    assert declared.graph_support() == graph
    assert backend(DeclaredAttention()).workspace_bytes(REQUEST, 10) == 0


def test_it_cannot_be_run() -> None:
    declared = backend(DeclaredAttention(limits=LIMITS))
    with pytest.raises(UnsupportedError, match="capability file"):
        declared.make_impl(REQUEST, 1.0)
    with pytest.raises(UnsupportedError, match="capability file"):
        declared.make_builder(SPEC, declared.kv_layout(SPEC), torch.device("cpu"))
