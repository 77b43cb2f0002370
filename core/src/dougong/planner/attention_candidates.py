"""One backend, one kind of layer, one block size: would it do, and if not, why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dougong.contracts import (
    AttentionLimits,
    AttentionPhase,
    AttentionRequest,
    Claims,
    KernelReport,
    KVCacheSpec,
    KVLayout,
)
from dougong.describe import AttentionNeed
from dougong.planner.backend_queries import BackendQueries
from dougong.planner.layout_rules import layout_problems
from dougong.planner.libraries import library_problem


@dataclass(frozen=True, slots=True)
class CacheTerms:
    """Dtypes and block size under which backends are asked.

    Attributes:
        dtype: Compute dtype.
        kv_dtype: Of the stored cache.
        block_size: Tokens per block.
        num_blocks: Blocks that were asked for; ``None``: an automatic number.
    """

    dtype: str
    kv_dtype: str
    block_size: int
    num_blocks: int | None = None


def request_of(
    need: AttentionNeed, terms: CacheTerms, phase: AttentionPhase = AttentionPhase.MIXED
) -> AttentionRequest:
    """What such a layer asks of a backend."""
    return AttentionRequest(
        num_heads=need.num_heads,
        num_kv_heads=need.num_kv_heads,
        head_dim=need.head_dim,
        dtype=terms.dtype,
        kv_dtype=terms.kv_dtype,
        block_size=terms.block_size,
        phase=phase,
        sliding_window=need.sliding_window,
        soft_cap=need.soft_cap,
        has_sinks=need.has_sinks,
        is_mla=need.is_mla,
        kv_lora_rank=need.kv_lora_rank,
        rope_head_dim=need.rope_head_dim,
    )


def spec_of(need: AttentionNeed, kv_dtype: str, block_size: int) -> KVCacheSpec:
    """What such a layer stores; a latent one a single row per token."""
    sizes = (need.num_kv_heads, need.head_dim, need.head_dim_v)
    if need.kv_lora_rank is not None:
        sizes = (1, need.kv_lora_rank + (need.rope_head_dim or 0), need.kv_lora_rank)
    num_kv_heads, head_dim, head_dim_v = sizes
    return KVCacheSpec(
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        head_dim_v=head_dim_v,
        dtype=kv_dtype,
        block_size=block_size,
        sliding_window=need.sliding_window,
    )


@dataclass(frozen=True, slots=True)
class BackendJudge:
    """Says of a backend why it will not do.

    Attributes:
        queries: To the backends.
        kernels: Libraries, as far as they were tried.
        failed: Backend → how it failed when it was first used.
        provenance: Property of the checkpoint → where its value came from.
        claims: Of the device: what it does not take, no backend can.
    """

    queries: BackendQueries
    kernels: KernelReport | None
    failed: Mapping[str, str]
    provenance: Mapping[str, str]
    claims: Claims

    def objection(
        self, name: str, need: AttentionNeed, terms: CacheTerms, phase: AttentionPhase
    ) -> str:
        """Why a backend does not serve such layers in one phase; empty where it does."""
        if unusable := self.unusable(name):
            return unusable
        request = request_of(need, terms, phase)
        if not (answer := self.queries.supports(name, request)):
            return answer.reason + self._origins(self.queries.backends[name].limits, request)
        if beyond := "; ".join(self._beyond_device(need, terms)):
            return beyond
        problems = layout_problems(
            self.layout(name, need, terms),
            block_size=terms.block_size,
            kv_dtype=terms.kv_dtype,
            num_blocks=terms.num_blocks,
        )
        return "; ".join(problems)

    def unusable(self, name: str) -> str:
        """Why nobody could use a backend now, whatever the layer; empty: somebody could."""
        if name in self.failed:
            return f"failed at its first use: {self.failed[name]}"
        backend = self.queries.backends[name]
        if lacking := sorted(backend.features - self.claims.features):
            return f"needs {', '.join(lacking)}, which this device does not claim"
        return library_problem(backend.library, self.kernels)

    def layout(self, name: str, need: AttentionNeed, terms: CacheTerms) -> KVLayout:
        """How a backend stores the cache of such layers."""
        return self.queries.kv_layout(name, spec_of(need, terms.kv_dtype, terms.block_size))

    def _beyond_device(self, need: AttentionNeed, terms: CacheTerms) -> Iterator[str]:
        """What a backend takes and the device does not claim."""
        if terms.kv_dtype not in self.claims.kv_dtypes:
            stores = ", ".join(self.claims.kv_dtypes)
            yield f"it takes KV dtype {terms.kv_dtype}, and this device stores {stores}"
        most = self.claims.max_head_size
        if most is not None and need.head_dim > most:
            origin = self.provenance.get("head_dim")
            yield (
                f"it takes head size {need.head_dim}, and this device takes at most {most}"
                + (f" ({origin})" if origin else "")
            )

    def _origins(self, limits: AttentionLimits | None, request: AttentionRequest) -> str:
        """Where the values that a backend does not take came from."""
        told = [self.provenance[what] for what in _blocked(limits, request)
                if what in self.provenance]  # fmt: skip
        return f" ({'; '.join(told)})" if told else ""


def _blocked(limits: AttentionLimits | None, request: AttentionRequest) -> Iterator[str]:
    """Properties of the checkpoint that stated limits do not take."""
    if limits is None:
        return
    if request.dtype not in limits.dtypes:
        yield "dtype"
    size = request.head_dim
    is_listed = not limits.head_sizes or size in limits.head_sizes
    is_small = limits.max_head_size is None or size <= limits.max_head_size
    if not is_listed or not is_small or size % limits.head_size_multiple:
        yield "head_dim"
