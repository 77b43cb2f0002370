"""Two backends that share a KV layout, as one: one computes prefill, the other decode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from dougong.attention.parts import make_builder, make_impl
from dougong.attention.split_step import TokenRows, split_step
from dougong.contracts import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionPhase,
    AttentionRequest,
    CommonAttentionMetadata,
    KVCacheSpec,
    KVLayout,
    PluginError,
    Support,
)
from dougong.ops.guard import Classified


@dataclass(frozen=True, slots=True)
class PairedPart:
    """What one of the two computes in a step.

    Attributes:
        is_decode: The decode backend does; otherwise the prefill one.
        rows: Of ``q`` and ``out``; ``None``: all of them.
        metadata: What its builder made.
    """

    is_decode: bool
    rows: TokenRows | None
    metadata: Any


class PairedBuilder(AttentionMetadataBuilder):
    """Splits a step into sequences with one query token and the others, once for all layers.

    A step of only one kind goes whole to the backend of that kind; sequences without a query token
    go to neither.

    Args:
        names: Of the backends, prefill first.
        prefill: Of the prefill backend.
        decode: Of the decode backend.
    """

    def __init__(
        self,
        names: tuple[str, str],
        prefill: AttentionMetadataBuilder,
        decode: AttentionMetadataBuilder,
    ) -> None:
        self.names = names
        self.prefill = prefill
        self.decode = decode

    def build(self, common: CommonAttentionMetadata) -> tuple[PairedPart, ...]:
        return tuple(
            PairedPart(
                part.is_decode,
                part.rows,
                (self.decode if part.is_decode else self.prefill).build(part.common),
            )
            for part in split_step(common)
        )


class PairedAttentionImpl(AttentionImpl):
    """One layer of both.

    Args:
        names: Of the backends, prefill first.
        prefill: Of the prefill backend; it writes the cache for both, since they share the layout.
        decode: Of the decode backend.
    """

    def __init__(
        self, names: tuple[str, str], prefill: AttentionImpl, decode: AttentionImpl
    ) -> None:
        self.names = names
        self.prefill = prefill
        self.decode = decode

    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        self.prefill.write_kv(k, v, kv_cache, slot_mapping)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: tuple[PairedPart, ...],
        out: torch.Tensor,
    ) -> None:
        for part in metadata:
            impl, rows = self.decode if part.is_decode else self.prefill, part.rows
            if rows is None:
                impl.forward(q, k, v, kv_cache, part.metadata, out)
            elif isinstance(rows, slice):
                impl.forward(q[rows], k[rows], v[rows], kv_cache, part.metadata, out[rows])
            else:
                computed = out.new_empty((len(rows), *out.shape[1:]))
                impl.forward(q[rows], k[rows], v[rows], kv_cache, part.metadata, computed)
                out.index_copy_(0, rows, computed)


class PairedBackend(AttentionBackend):
    """Made by the worker where the plan names two backends for one kind of layer.

    Args:
        prefill: Computes sequences with more than one query token.
        decode: Computes those with one.
        classified: See `attempt`.
    """

    def __init__(
        self,
        prefill: AttentionBackend,
        decode: AttentionBackend,
        classified: Classified = nullcontext,
    ) -> None:
        self.name = f"{prefill.name} + {decode.name}"
        self._prefill = prefill
        self._decode = decode
        self._classified = classified

    @property
    def _names(self) -> tuple[str, str]:
        return self._prefill.name, self._decode.name

    def supports(self, request: AttentionRequest) -> Support:
        """Each for its own phase."""
        for backend, own in self._each_with_its_phase(request):
            verdict = backend.supports(own)
            if not verdict:
                return Support.no(f"{own.phase} by {backend.name}: {verdict.reason}")
        return Support.yes()

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        """The prefill backend's.

        Raises:
            PluginError: The decode backend's layout is another.
        """
        layout, other = self._prefill.kv_layout(spec), self._decode.kv_layout(spec)
        is_shared = replace(layout, block_sizes=()) == replace(other, block_sizes=())
        if not is_shared or spec.block_size not in other.block_sizes:
            raise PluginError(
                f"attention backends {self._prefill.name!r} and {self._decode.name!r} share no KV "
                f"layout: {layout} and {other}"
            )
        return layout

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        """One layer of each."""
        prefill, decode = (
            make_impl(backend, own, scale, self._classified)
            for backend, own in self._each_with_its_phase(request)
        )
        return PairedAttentionImpl(self._names, prefill, decode)

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        """One builder of each."""
        prefill, decode = (
            make_builder(backend, spec, layout, device, self._classified)
            for backend in (self._prefill, self._decode)
        )
        return PairedBuilder(self._names, prefill, decode)

    def workspace_bytes(self, request: AttentionRequest, max_num_tokens: int) -> int:
        """Of both: what either keeps stays while the other computes."""
        return sum(
            backend.workspace_bytes(own, max_num_tokens)
            for backend, own in self._each_with_its_phase(request)
        )

    def _each_with_its_phase(
        self, request: AttentionRequest
    ) -> Iterator[tuple[AttentionBackend, AttentionRequest]]:
        yield self._prefill, replace(request, phase=AttentionPhase.PREFILL)
        yield self._decode, replace(request, phase=AttentionPhase.DECODE)


def with_each_builder(
    pair: PairedBuilder,
    change: Callable[[str, AttentionMetadataBuilder], AttentionMetadataBuilder],
) -> PairedBuilder:
    """A pair of what ``change`` makes of each, told its backend's name."""
    prefill, decode = pair.names
    return PairedBuilder(pair.names, change(prefill, pair.prefill), change(decode, pair.decode))


def with_each_impl(
    pair: PairedAttentionImpl, change: Callable[[str, AttentionImpl], AttentionImpl]
) -> PairedAttentionImpl:
    """A pair of what ``change`` makes of each, told its backend's name."""
    prefill, decode = pair.names
    return PairedAttentionImpl(
        pair.names, change(prefill, pair.prefill), change(decode, pair.decode)
    )
