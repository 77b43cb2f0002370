"""A built model's attention layers: who computes each, how its cache lies, who makes its
metadata."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from dougong.attention import Attention, check_attention_parts, choose_backend
from dougong.contracts import (
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
    PluginError,
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
        self._platform = platform
        is_asked = "block_size" in config.explicit
        self._layers: dict[AttentionRequest, list[Attention]] = {}
        for module in model.modules():
            if isinstance(module, Attention):
                request = module.request(
                    config.dtype, config.kv_cache_dtype, config.block_size if is_asked else None
                )
                self._layers.setdefault(request, []).append(module)
        self._choices = {
            request: choose_backend(platform, request, config.attention_backend)
            for request in self._layers
        }
        self.block_size = self._choose_block_size(config.block_size, is_asked)
        self.groups = tuple(self._group(request, self.block_size) for request in self._layers)
        self.reserved_blocks = max(layout.reserved_blocks for _, layout in self.groups)
        self._bind()

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
        builders = []
        for choice, (group, layout) in zip(self._choices.values(), self.groups, strict=True):
            builder = choice.backend.make_builder(group.spec, layout, self._device)
            check_attention_parts(choice.backend, builder=builder)
            builders.append(builder)
        return builders

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
                        allocate_buffer(
                            buffer, config.num_blocks, self._device, layout.alignment_bytes
                        )
                        for buffer in layout.buffers
                    ],
                )

    def buffers(self) -> Iterator[torch.Tensor]:
        """Every buffer that is bound now."""
        for layers in self._layers.values():
            for layer in layers:
                yield from layer.kv_cache

    def drop(self) -> None:
        """Let every buffer go."""
        for layers in self._layers.values():
            for layer in layers:
                layer.bind_cache(0, ())

    def _bind(self) -> None:
        for request, layers in self._layers.items():
            backend = self._choices[request].backend
            for layer in layers:
                impl = backend.make_impl(request, layer.scale)
                check_attention_parts(backend, impl=impl)
                layer.bind_backend(impl)

    def _choose_block_size(self, preferred: int, is_asked: bool) -> int:
        """``preferred``, or, where nobody asked for it, the first that every layout takes."""
        layouts = [self._group(request, preferred)[1] for request in self._layers]
        taken = [size for size in layouts[0].block_sizes if _all_take(layouts, size)]
        if _all_take(layouts, preferred):
            return preferred
        names = ", ".join(choice.backend.name for choice in self._choices.values())
        if is_asked:
            raise ConfigError(
                f"block_size={preferred} is not taken by attention backend {names}, which takes "
                f"{', '.join(map(str, taken)) or 'no size that all layers share'}. Leave it unset."
            )
        if not taken:
            raise PluginError(
                f"the attention backends {names} of platform {self._platform.name!r} share no "
                "block size, and in contract 1.0 every group of layers has the same",
                plugin=self._platform.name,
            )
        return taken[0]

    def _group(self, request: AttentionRequest, block_size: int) -> tuple[KVCacheGroup, KVLayout]:
        spec = KVCacheSpec(
            num_kv_heads=request.num_kv_heads,
            head_dim=request.head_dim,
            dtype=request.kv_dtype,
            block_size=block_size,
            sliding_window=request.sliding_window,
        )
        indices = tuple(layer.layer_index for layer in self._layers[request])
        return KVCacheGroup(spec, indices), self._choices[request].backend.kv_layout(spec)


def _all_take(layouts: Sequence[KVLayout], block_size: int) -> bool:
    return all(block_size in layout.block_sizes for layout in layouts)


def allocate_buffer(
    buffer: KVBuffer, num_blocks: int, device: torch.device, alignment_bytes: int = 1
) -> torch.Tensor:
    """One buffer, its axes in memory as ``stride_order`` says; contents undefined.

    Where blocks are outermost in memory, each starts at a multiple of ``alignment_bytes``.

    Raises:
        PluginError: Blocks are not outermost and their bytes are no multiple of the alignment.
    """
    shape, dtype = buffer.shape(num_blocks), getattr(torch, buffer.dtype)
    order = buffer.stride_order or tuple(range(len(shape)))
    sizes = [shape[axis] for axis in order]
    if buffer.block_bytes % alignment_bytes == 0:
        stored = _aligned_empty(math.prod(sizes), dtype, device, alignment_bytes).view(sizes)
    elif order[0] == buffer.block_axis and alignment_bytes % dtype.itemsize == 0:
        stride = -(-buffer.block_bytes // alignment_bytes) * alignment_bytes // dtype.itemsize
        flat = _aligned_empty(num_blocks * stride, dtype, device, alignment_bytes)
        inner = math.prod(sizes[1:])
        stored = flat.view(num_blocks, stride)[:, :inner].view(sizes)
    else:
        raise PluginError(
            f"KV buffer {buffer.name!r} has blocks of {buffer.block_bytes} bytes, which cannot "
            f"each start at a multiple of {alignment_bytes}: put the block axis outermost in "
            "memory, or make the block a multiple"
        )
    return stored.permute([order.index(axis) for axis in range(len(shape))])


def _aligned_empty(
    num_elements: int, dtype: torch.dtype, device: torch.device, alignment_bytes: int
) -> torch.Tensor:
    """A flat tensor that starts at a multiple of ``alignment_bytes``."""
    spare = -(-alignment_bytes // dtype.itemsize)
    flat = torch.empty(num_elements + spare, dtype=dtype, device=device)
    offset = -flat.data_ptr() % alignment_bytes // dtype.itemsize
    return flat[offset : offset + num_elements]
