"""An attention backend that a file speaks of: it can be asked, and computes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from dougong.contracts import (
    AttentionBackend,
    AttentionImpl,
    AttentionLimits,
    AttentionMetadataBuilder,
    AttentionRequest,
    Claims,
    GraphSupport,
    KVBuffer,
    KVCacheSpec,
    KVLayout,
    Support,
    UnsupportedError,
)
from dougong.describe.declared_layout import DeclaredLayout

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredAttention:
    """What a capability file says of one attention backend.

    Attributes:
        limits: What it takes; ``None``: only the wheel can say.
        has_own_checks: It asks for more than its limits say, in code.
        library: Kernel library it calls; ``None``: none.
        features: What the device has to claim.
        layouts: How it stores the KV cache, for every dtype where data can say it.
        workspace_bytes: Device memory beside the cache, whatever the step.
        workspace_bytes_per_token: The same, for each token of the largest step; both are those of
            a layer of common sizes.
        graph: What of it may be captured.
    """

    limits: AttentionLimits | None = None
    has_own_checks: bool = False
    library: str | None = None
    features: frozenset[str] = frozenset()
    layouts: tuple[DeclaredLayout, ...] = ()
    workspace_bytes: int = 0
    workspace_bytes_per_token: int = 0
    graph: GraphSupport = field(default_factory=GraphSupport)

    def layout_for(self, dtype: str) -> DeclaredLayout | None:
        """Of a cache of this dtype; ``None``: nothing is said of it."""
        return next((one for one in self.layouts if one.takes(dtype)), None)


class DeclaredBackend(AttentionBackend):
    """Answers as the file and the device's claims say.

    Where the file states no layout, it is taken to be K and V apart, tokens outermost in a block.
    Sizes and alignment are then right for every backend that stores no more than K and V.

    Args:
        name: Of the backend.
        declared: What is said of it.
        claims: Of the device.
    """

    def __init__(self, name: str, declared: DeclaredAttention, claims: Claims) -> None:
        self.name = name
        self.library = declared.library
        self.features = declared.features
        self.limits = declared.limits
        self._declared = declared
        self._claims = claims

    def supports(self, request: AttentionRequest) -> Support:
        """As the limits say; without any, no."""
        if self.limits is None:
            return Support.no(
                "the capability file states no limits of it; its wheel, installed here, could say"
            )
        return self.limits.check(request)

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        """As stated; else K and V apart, in the block sizes, alignment and slot dtype claimed."""
        declared = self._declared.layout_for(spec.dtype)
        return self._assumed_layout(spec) if declared is None else declared.sized(spec)

    def workspace_bytes(self, request: AttentionRequest, max_num_tokens: int) -> int:
        """As stated, whatever the layer."""
        stated = self._declared
        return stated.workspace_bytes + stated.workspace_bytes_per_token * max_num_tokens

    def graph_support(self) -> GraphSupport:
        """As stated."""
        return self._declared.graph

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        """Nobody can: only a description is here."""
        self._refuse()

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        """Nobody can: only a description is here."""
        self._refuse()

    def _assumed_layout(self, spec: KVCacheSpec) -> KVLayout:
        shape = (spec.block_size, spec.num_kv_heads)
        block_sizes = self.limits.block_sizes if self.limits else ()
        return KVLayout(
            name=self.name,
            buffers=(
                KVBuffer(name="k", block_shape=(*shape, spec.head_dim), dtype=spec.dtype),
                KVBuffer(
                    name="v",
                    block_shape=(*shape, spec.head_dim_v or spec.head_dim),
                    dtype=spec.dtype,
                ),
            ),
            block_sizes=block_sizes or self._claims.kv_block_sizes,
            alignment_bytes=self._claims.kv_alignment_bytes,
            slot_dtype=self._claims.slot_dtype,
        )

    def _refuse(self) -> NoReturn:
        raise UnsupportedError(
            f"attention backend {self.name!r} is known from a capability file: one can plan with "
            "it and not run it. Install its wheel on a machine that has the device."
        )
