"""An attention backend that a file speaks of: it can be asked, and computes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from dougong.contracts import (
    AttentionBackend,
    AttentionImpl,
    AttentionLimits,
    AttentionMetadataBuilder,
    AttentionRequest,
    Claims,
    KVBuffer,
    KVCacheSpec,
    KVLayout,
    Support,
    UnsupportedError,
)

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredAttention:
    """What a capability file says of one attention backend.

    Attributes:
        limits: What it takes; ``None``: only the wheel can say.
        library: Kernel library it calls; ``None``: none.
        layout: Name of its KV layout; two with one name may serve one layer. Empty: its own.
    """

    limits: AttentionLimits | None = None
    library: str | None = None
    layout: str = ""


class DeclaredBackend(AttentionBackend):
    """Answers as its limits and the device's claims say.

    The layout of the KV cache is K and V apart, tokens outermost in a block. Sizes and alignment
    are right for every backend that stores no more than K and V; its order of axes may differ.

    Args:
        name: Of the backend.
        declared: What is said of it.
        claims: Of the device.
    """

    def __init__(self, name: str, declared: DeclaredAttention, claims: Claims) -> None:
        self.name = name
        self.library = declared.library
        self.limits = declared.limits
        self._layout = declared.layout or name
        self._claims = claims

    def supports(self, request: AttentionRequest) -> Support:
        """As the limits say; without any, no."""
        if self.limits is None:
            return Support.no(
                "the capability file states no limits of it; its wheel, installed here, could say"
            )
        return self.limits.check(request)

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        """K and V apart, in the block sizes, alignment and slot dtype that are claimed."""
        shape = (spec.block_size, spec.num_kv_heads)
        block_sizes = self.limits.block_sizes if self.limits else ()
        return KVLayout(
            name=self._layout,
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

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        """Nobody can: only a description is here."""
        self._refuse()

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        """Nobody can: only a description is here."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UnsupportedError(
            f"attention backend {self.name!r} is known from a capability file: one can plan with "
            "it and not run it. Install its wheel on a machine that has the device."
        )
