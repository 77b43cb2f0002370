"""A backend's first calls, watched: one that raises is named, so that planning can do without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from dougong.attention.paired import (
    PairedAttentionImpl,
    PairedBuilder,
    with_each_builder,
    with_each_impl,
)
from dougong.attention.parts import attempt
from dougong.contracts import AttentionImpl, AttentionMetadataBuilder, CommonAttentionMetadata
from dougong.ops.guard import Guard

T = TypeVar("T")


class FirstUse(Guard):
    """How calls are watched."""

    def call(self, name: str, what: str, call: Callable[[], T]) -> T:
        """What ``call`` returns.

        Raises:
            ImplementationError: It raised; the backend ``name`` and ``what`` it did are named.
            DeviceError: The device failed in another way than a kernel's fault.
        """
        self.settle()
        return attempt(name, what, lambda: self.run(call))


def watched_impl(name: str, impl: AttentionImpl, first_use: FirstUse) -> AttentionImpl:
    """``impl``, each call of it watched; of a pair, the one whose call it is gets named."""
    if isinstance(impl, PairedAttentionImpl):
        return with_each_impl(impl, lambda name, part: watched_impl(name, part, first_use))
    return _WatchedImpl(name, impl, first_use)


def watched_builder(
    name: str, builder: AttentionMetadataBuilder, first_use: FirstUse
) -> AttentionMetadataBuilder:
    """``builder``, watched in the same way."""
    if isinstance(builder, PairedBuilder):
        return with_each_builder(builder, lambda name, part: watched_builder(name, part, first_use))
    return _WatchedBuilder(name, builder, first_use)


class _WatchedImpl(AttentionImpl):
    def __init__(self, name: str, impl: AttentionImpl, first_use: FirstUse) -> None:
        self._name = name
        self._impl = impl
        self._first_use = first_use

    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        self._first_use.call(
            self._name,
            "write_kv()",
            lambda: self._impl.write_kv(k, v, kv_cache, slot_mapping),
        )

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: Any,
        out: torch.Tensor,
    ) -> None:
        self._first_use.call(
            self._name,
            "forward()",
            lambda: self._impl.forward(q, k, v, kv_cache, metadata, out),
        )


class _WatchedBuilder(AttentionMetadataBuilder):
    def __init__(self, name: str, builder: AttentionMetadataBuilder, first_use: FirstUse) -> None:
        self._name = name
        self._builder = builder
        self._first_use = first_use

    def build(self, common: CommonAttentionMetadata) -> Any:
        return self._first_use.call(self._name, "build()", lambda: self._builder.build(common))
