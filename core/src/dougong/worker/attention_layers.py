"""A built model's attention layers: who computes each, how its cache lies, who makes its
metadata."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from dougong.attention import Attention, AttentionChoice, choose_backend
from dougong.contracts import (
    AttentionBackend,
    AttentionMetadataBuilder,
    AttentionRequest,
    ConfigError,
    ConfigView,
    KVBuffer,
    KVCacheConfig,
    KVCacheGroup,
    KVCacheSpec,
    KVLayout,
    Platform,
)


class AttentionLayers:
    """Chooses a backend per kind of layer and binds it; layers of one kind form a KV cache group.

    Args:
        model: Built; its `Attention` modules are bound.
        platform: Whose backends are asked.
        config: Final values of dtype, KV dtype, block size and the explicit backend.
        device: Where the cache will live.
    """

    def __init__(
        self, model: nn.Module, platform: Platform, config: ConfigView, device: torch.device
    ) -> None:
        assert config.dtype and config.kv_cache_dtype and config.block_size
        self._device = device
        self._block_size = config.block_size
        self._layers: dict[AttentionRequest, list[Attention]] = {}
        for module in model.modules():
            if isinstance(module, Attention):
                request = module.request(config.dtype, config.kv_cache_dtype, config.block_size)
                self._layers.setdefault(request, []).append(module)
        self._choices: dict[AttentionRequest, AttentionChoice] = {}
        for request, layers in self._layers.items():
            choice = choose_backend(platform, request, config.attention_backend)
            self._choices[request] = choice
            for layer in layers:
                layer.bind_backend(choice.backend.make_impl(request, layer.scale))
        self.groups = tuple(self._group(request) for request in self._layers)

    def count_backends(self) -> dict[str, int]:
        """Backend name → layers it serves."""
        counts: dict[str, int] = {}
        for request, layers in self._layers.items():
            name = self._choices[request].backend.name
            counts[name] = counts.get(name, 0) + len(layers)
        return counts

    def notes(self) -> Iterator[str]:
        """One sentence per backend that was passed over."""
        for choice in self._choices.values():
            for name, reason in choice.passed_over.items():
                yield f"attention: {name} was passed over: {reason}"

    def workspace_bytes(self, max_num_tokens: int) -> int:
        """What the hungriest backend takes beside the cache; layers run one after the other."""
        return max(
            choice.backend.workspace_bytes(request, max_num_tokens)
            for request, choice in self._choices.items()
        )

    def make_builders(self) -> list[AttentionMetadataBuilder]:
        """One per group, in group order."""
        return [
            choice.backend.make_builder(group.spec, layout, self._device)
            for choice, (group, layout) in zip(self._choices.values(), self.groups, strict=True)
        ]

    def allocate(self, config: KVCacheConfig) -> None:
        """Allocate and bind every layer's buffers; what was bound before is let go."""
        self.drop()
        for index, (layers, (_, layout)) in enumerate(
            zip(self._layers.values(), self.groups, strict=True)
        ):
            for layer in layers:
                layer.bind_cache(
                    index,
                    [
                        allocate_buffer(buffer, config.num_blocks, self._device)
                        for buffer in layout.buffers
                    ],
                )

    def drop(self) -> None:
        """Let every buffer go."""
        for layers in self._layers.values():
            for layer in layers:
                layer.bind_cache(0, ())

    def _group(self, request: AttentionRequest) -> tuple[KVCacheGroup, KVLayout]:
        layers = self._layers[request]
        backend = self._choices[request].backend
        spec = KVCacheSpec(
            num_kv_heads=request.num_kv_heads,
            head_dim=request.head_dim,
            dtype=request.kv_dtype,
            block_size=self._block_size,
            sliding_window=request.sliding_window,
        )
        group = KVCacheGroup(spec, tuple(layer.layer_index for layer in layers))
        return group, _checked_layout(backend, spec)


def _checked_layout(backend: AttentionBackend, spec: KVCacheSpec) -> KVLayout:
    layout = backend.kv_layout(spec)
    if spec.block_size not in layout.block_sizes:
        raise ConfigError(
            f"block_size={spec.block_size} is not taken by attention backend {backend.name!r}, "
            f"which takes {', '.join(map(str, layout.block_sizes))}. Leave it unset."
        )
    return layout


def allocate_buffer(buffer: KVBuffer, num_blocks: int, device: torch.device) -> torch.Tensor:
    """One buffer, its axes in memory as ``stride_order`` says; contents undefined."""
    shape, dtype = buffer.shape(num_blocks), getattr(torch, buffer.dtype)
    order = buffer.stride_order or tuple(range(len(shape)))
    stored = torch.empty([shape[axis] for axis in order], dtype=dtype, device=device)
    return stored.permute([order.index(axis) for axis in range(len(shape))])
