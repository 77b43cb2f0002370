"""A built model's attention layers: bound to the backends the plan names, each with its cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from dougong.attention import (
    Attention,
    Classified,
    FirstUse,
    make_builder,
    make_impl,
    watched_builder,
    watched_impl,
)
from dougong.contracts import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadataBuilder,
    ImplementationError,
    KVCacheConfig,
    RankPlan,
    UnsupportedError,
)
from dougong.worker.attention_kinds import planned_kinds
from dougong.worker.kv_buffers import allocate_buffer


class AttentionLayers:
    """Binds every attention layer as the plan says; each assignment is a KV cache group.

    Args:
        model: Built; its `Attention` modules are bound.
        backends: Of the platform, by name.
        plan: Whom to bind.
        device: Where the cache will live.
        classified: Made around a backend's own code; turns a vendor's exceptions into `DeviceError`
            where they are one.

    Raises:
        PluginError: The plan and the model name different layers, or the same ones differently; a
            backend is not there, or answers with another layout than while planning.
        ImplementationError: Backends that cannot make their part for a layer, all of them.
    """

    def __init__(
        self,
        model: nn.Module,
        backends: Mapping[str, AttentionBackend],
        plan: RankPlan,
        device: torch.device,
        classified: Classified = nullcontext,
    ) -> None:
        self._device = device
        self._classified = classified
        self.block_size = plan.block_size
        self._kinds = planned_kinds(model, backends, plan, classified)
        self.groups = tuple((kind.group, kind.layout) for kind in self._kinds)
        self.reserved_blocks = max((layout.reserved_blocks for _, layout in self.groups), default=0)
        self._bind()

    def count_backends(self) -> dict[str, int]:
        """Backend → layers it serves, for prefill or decode; as they are bound."""
        counts: Counter[str] = Counter()
        for layer in self._layers():
            counts.update(dict.fromkeys(layer.backends, 1))
        return dict(counts)

    def workspace_bytes(self, max_num_tokens: int) -> int:
        """What the hungriest backend takes beside the cache; layers run one after the other."""
        return max(
            (kind.backend.workspace_bytes(kind.request, max_num_tokens) for kind in self._kinds),
            default=0,
        )

    def make_builders(self) -> list[AttentionMetadataBuilder]:
        """One per group, in group order.

        Raises:
            ImplementationError: A backend cannot make its own.
        """
        return [
            make_builder(kind.backend, kind.group.spec, kind.layout, self._device, self._classified)
            for kind in self._kinds
        ]

    def allocate(self, config: KVCacheConfig) -> None:
        """Allocate and bind every layer's buffers; what was bound before is let go.

        Raises:
            UnsupportedError: Its groups are not those of the plan, or of another block size.
        """
        self._check_groups(config)
        self.drop()
        for index, kind in enumerate(self._kinds):
            alignment = kind.layout.alignment_bytes
            for layer in kind.layers:
                buffers = [
                    allocate_buffer(buffer, config.num_blocks, self._device, alignment)
                    for buffer in kind.layout.buffers
                ]
                layer.bind_cache(index, buffers)

    def buffers(self) -> Iterator[torch.Tensor]:
        """Every buffer that is bound now."""
        for layer in self._layers():
            yield from layer.kv_cache

    def drop(self) -> None:
        """Let every buffer go."""
        for layer in self._layers():
            layer.bind_cache(0, ())

    @contextmanager
    def watch_first_use(
        self, builders: list[AttentionMetadataBuilder], synchronize: Callable[[], None]
    ) -> Iterator[None]:
        """Inside, a backend that raises is named: `ImplementationError`.

        Args:
            builders: As `make_builders` gave them to whoever runs steps; inside, others stand in
                their place.
            synchronize: Waits for the device.
        """
        first_use = FirstUse(synchronize, self._classified)
        own = list(builders)
        impls = [(layer, layer.impl) for layer in self._layers()]
        for kind in self._kinds:
            for layer in kind.layers:
                layer.bind_backend(kind.names, watched_impl(kind.names[0], layer.impl, first_use))
        builders[:] = [
            watched_builder(kind.names[0], builder, first_use)
            for kind, builder in zip(self._kinds, own, strict=True)
        ]
        try:
            yield
        finally:
            builders[:] = own
            for layer, impl in impls:
                layer.bind_backend(layer.backends, impl)

    @contextmanager
    def replaced(self, impl_for: Callable[[Attention], AttentionImpl]) -> Iterator[None]:
        """Inside, each layer calls what ``impl_for`` makes for it."""
        impls = [(layer, layer.impl) for layer in self._layers()]
        for layer, _ in impls:
            layer.bind_backend(layer.backends, impl_for(layer))
        try:
            yield
        finally:
            for layer, impl in impls:
                layer.bind_backend(layer.backends, impl)

    def _layers(self) -> Iterator[Attention]:
        for kind in self._kinds:
            yield from kind.layers

    def _bind(self) -> None:
        failures: dict[str, str] = {}
        causes = []
        for kind in self._kinds:
            try:
                for layer in kind.layers:
                    impl = make_impl(kind.backend, kind.request, layer.scale, self._classified)
                    layer.bind_backend(kind.names, impl)
            except ImplementationError as exc:
                failures |= exc.failures
                causes.append(exc.__cause__)
        if failures:
            raise ImplementationError(failures) from causes[0]

    def _check_groups(self, config: KVCacheConfig) -> None:
        given, planned = config.groups, tuple(group for group, _ in self.groups)
        if given == planned:
            return
        sizes = {group.spec.block_size for group in given}
        if sizes != {self.block_size}:
            what = f"block_size {', '.join(map(str, sorted(sizes)))}"
            raise UnsupportedError(
                f"the KV cache was sized with {what}, and the layouts of this rank's plan take "
                f"{self.block_size}; whoever sizes and schedules must use the plan's block size"
            )
        raise UnsupportedError(
            f"the KV cache was sized for the groups {given}, and this rank's plan has {planned}"
        )
