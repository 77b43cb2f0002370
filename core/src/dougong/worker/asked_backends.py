"""Attention backends as a rank asks them: one that raises, or answers oddly, is its plugin's."""

from __future__ import annotations

import torch

from dougong.attention import load_backends
from dougong.contracts import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionRequest,
    GraphSupport,
    KVCacheSpec,
    KVLayout,
    MLAImpl,
    Platform,
    Support,
)
from dougong.planner.backend_queries import BackendQueries


def asked_backends(platform: Platform) -> dict[str, AttentionBackend]:
    """A platform's backends; questions to them raise `PluginError` as they do while planning.

    Raises:
        ContractError, PluginError: As `load_backends`.
    """
    backends = load_backends(platform)
    queries = BackendQueries(backends, platform.get_attn_backend_cls, platform.name)
    return {name: AskedBackend(backend, queries) for name, backend in backends.items()}


class AskedBackend(AttentionBackend):
    """A backend behind its questions. What makes its parts has guards of its own.

    Args:
        backend: The platform's.
        queries: Knows it by its name.
    """

    def __init__(self, backend: AttentionBackend, queries: BackendQueries) -> None:
        self.name = backend.name
        self.library = backend.library
        self.features = backend.features
        self.limits = backend.limits
        self._backend = backend
        self._queries = queries

    def supports(self, request: AttentionRequest) -> Support:
        return self._queries.supports(self.name, request)

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        return self._queries.kv_layout(self.name, spec)

    def workspace_bytes(self, request: AttentionRequest, max_num_tokens: int) -> int:
        return self._queries.workspace_bytes(self.name, request, max_num_tokens)

    def graph_support(self) -> GraphSupport:
        return self._queries.graph_support(self.name)

    def check_supported(self, request: AttentionRequest) -> None:
        self._backend.check_supported(request)

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        return self._backend.make_impl(request, scale)

    def make_mla_impl(self, request: AttentionRequest, scale: float) -> MLAImpl:
        return self._backend.make_mla_impl(request, scale)

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        return self._backend.make_builder(spec, layout, device)
