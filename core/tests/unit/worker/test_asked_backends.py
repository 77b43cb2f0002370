"""A backend behind its questions is the backend, but for who is blamed."""

from __future__ import annotations

from dougong.contracts import AttentionBackend, AttentionRequest, KVCacheSpec
from dougong.cpu.platform import CpuPlatform
from dougong.worker.asked_backends import AskedBackend, asked_backends


def public(cls: type) -> set[str]:
    return {name for name, value in vars(cls).items() if name[0] != "_" and callable(value)}


def test_no_question_goes_past_the_guard() -> None:
    assert public(AskedBackend) == public(AttentionBackend)


def test_the_answers_are_the_backends_own() -> None:
    request = AttentionRequest(
        num_heads=4, num_kv_heads=2, head_dim=16, dtype="float32", kv_dtype="float32", block_size=16
    )
    spec = KVCacheSpec(num_kv_heads=2, head_dim=16, dtype="float32", block_size=16)
    for name, asked in asked_backends(CpuPlatform()).items():
        assert isinstance(asked, AskedBackend)
        own = asked._backend
        assert (asked.name, asked.library, asked.limits) == (name, own.library, own.limits)
        assert asked.features == own.features
        assert asked.supports(request) == own.supports(request)
        assert asked.kv_layout(spec) == own.kv_layout(spec)
        assert asked.graph_support() == own.graph_support()
        assert asked.workspace_bytes(request, 9) == own.workspace_bytes(request, 9)
