"""A model, a paged cache and nothing else: what the worker does for a step, at its plainest."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from dougong.attention import Attention, AttentionStep, need_of
from dougong.contracts import (
    AttentionBackend,
    AttentionMetadataBuilder,
    CommonAttentionMetadata,
    KVBuffer,
    KVCacheSpec,
    KVLayout,
)
from dougong.models import CausalLM
from dougong.planner.attention_candidates import CacheTerms, request_of
from dougong.reference import ReferenceAttentionBackend


@dataclass(slots=True)
class _Sequence:
    """One sequence's place in the cache."""

    num_tokens: int = 0
    blocks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Group:
    """Layers that store alike."""

    spec: KVCacheSpec
    builder: AttentionMetadataBuilder


class ModelHarness:
    """Runs steps of a loaded model over a paged cache that it makes and fills.

    Blocks are handed out in random order, entries of the block table past a sequence's end hold a
    block of somebody else, and the cache starts as NaN: whoever reads what was never written shows.

    Args:
        model: Loaded; its attention layers are bound here.
        backend: Who computes attention; ``None``: the reference backend.
        block_size: Tokens per block.
        num_blocks: Blocks for all sequences together.
        kv_dtype: Of the cache; ``None``: the model's.
        device: Where the model lives.
    """

    def __init__(
        self,
        model: CausalLM,
        *,
        backend: AttentionBackend | None = None,
        block_size: int = 16,
        num_blocks: int = 128,
        kv_dtype: torch.dtype | None = None,
        device: str = "cpu",
    ) -> None:
        self.model = model
        self.block_size = block_size
        self.device = torch.device(device)
        self._free = list(range(num_blocks))
        random.Random(0).shuffle(self._free)
        self._sequences: dict[str, _Sequence] = {}
        self._groups: list[_Group] = []
        chosen = ReferenceAttentionBackend() if backend is None else backend
        dtype, kv = (_name(d) for d in (model.dtype, kv_dtype or model.dtype))
        for layer in attention_layers(model):
            self._bind(layer, chosen, dtype, kv, num_blocks)

    @torch.inference_mode()
    def step(
        self, new_tokens: Mapping[str, Sequence[int]], num_logits: int | None = None
    ) -> dict[str, torch.Tensor]:
        """Compute more tokens of some sequences, in one forward call.

        Args:
            new_tokens: Sequence name to the tokens that follow those it has; a new name begins one.
            num_logits: Compute logits of this many last new tokens of each; ``None``: of all.

        Returns:
            Per sequence, float32 logits ``[number of its new tokens, vocab_size]``.
        """
        common, token_ids, positions = self._prepare(new_tokens)
        step = AttentionStep(
            metadata=[group.builder.build(common) for group in self._groups],
            slot_mappings=[common.slot_mapping for _ in self._groups],
        )
        hidden = self.model(token_ids, positions, step)
        parts = torch.split(hidden, [len(tokens) for tokens in new_tokens.values()])
        return {
            name: self.model.compute_logits(part if num_logits is None else part[-num_logits:])
            for name, part in zip(new_tokens, parts, strict=True)
        }

    def logits(
        self, token_ids: Sequence[int], chunks: Sequence[int], name: str = "a"
    ) -> torch.Tensor:
        """Logits at every position of one sequence, computed in pieces of the given sizes.

        ``chunks`` may end before the tokens do; its last size is then repeated.
        """
        parts, start, sizes = [], 0, list(chunks)
        while start < len(token_ids):
            size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
            parts.append(self.step({name: token_ids[start : start + size]})[name])
            start += size
        return torch.cat(parts)

    def greedy(self, prompt: Sequence[int], num_tokens: int, name: str = "greedy") -> list[int]:
        """Most likely continuation of a prompt."""
        fresh, tokens = list(prompt), list[int]()
        for _ in range(num_tokens):
            tokens.append(int(self.step({name: fresh}, num_logits=1)[name].argmax()))
            fresh = tokens[-1:]
        return tokens

    def free(self, name: str) -> None:
        """Forget a sequence; its blocks go to whoever comes next."""
        self._free += self._sequences.pop(name).blocks

    def _prepare(
        self, new_tokens: Mapping[str, Sequence[int]]
    ) -> tuple[CommonAttentionMetadata, torch.Tensor, torch.Tensor]:
        sequences = [self._grow(name, len(tokens)) for name, tokens in new_tokens.items()]
        counts = [len(tokens) for tokens in new_tokens.values()]
        positions = [
            position
            for sequence, count in zip(sequences, counts, strict=True)
            for position in range(sequence.num_tokens - count, sequence.num_tokens)
        ]
        owners = [s for s, count in zip(sequences, counts, strict=True) for _ in range(count)]
        slots = [
            owner.blocks[position // self.block_size] * self.block_size + position % self.block_size
            for owner, position in zip(owners, positions, strict=True)
        ]
        starts = torch.tensor([0, *counts]).cumsum(0).int()
        seq_lens = torch.tensor([sequence.num_tokens for sequence in sequences]).int()
        common = CommonAttentionMetadata(
            num_reqs=len(sequences),
            num_tokens=len(positions),
            max_query_len=max(counts),
            max_seq_len=int(seq_lens.max()),
            cu_seqlens_q=starts.to(self.device),
            cu_seqlens_q_cpu=starts,
            seq_lens=seq_lens.to(self.device),
            seq_lens_cpu=seq_lens,
            block_table=self._block_table(sequences),
            slot_mapping=self._on_device(slots),
        )
        ids = [token for tokens in new_tokens.values() for token in tokens]
        return common, self._on_device(ids), self._on_device(positions)

    def _grow(self, name: str, num_new: int) -> _Sequence:
        sequence = self._sequences.setdefault(name, _Sequence())
        sequence.num_tokens += num_new
        while len(sequence.blocks) * self.block_size < sequence.num_tokens:
            sequence.blocks.append(self._free.pop())
        return sequence

    def _block_table(self, sequences: Sequence[_Sequence]) -> torch.Tensor:
        width = max(len(sequence.blocks) for sequence in sequences) + 1
        stranger = self._free[0] if self._free else 0
        rows = [s.blocks + [stranger] * (width - len(s.blocks)) for s in sequences]
        return torch.tensor(rows, dtype=torch.int32, device=self.device)

    def _on_device(self, values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    def _bind(
        self, layer: Attention, backend: AttentionBackend, dtype: str, kv: str, num_blocks: int
    ) -> None:
        spec = KVCacheSpec(
            num_kv_heads=layer.num_kv_heads,
            head_dim=layer.head_dim,
            dtype=kv,
            block_size=self.block_size,
            sliding_window=layer.sliding_window,
        )
        request = request_of(need_of(layer), CacheTerms(dtype, kv, self.block_size))
        verdict = backend.supports(request)
        assert verdict, verdict.reason
        layout = backend.kv_layout(spec)
        index = next((i for i, group in enumerate(self._groups) if group.spec == spec), None)
        if index is None:
            index = len(self._groups)
            self._groups.append(_Group(spec, backend.make_builder(spec, layout, self.device)))
        layer.bind_backend((backend.name,), backend.make_impl(request, layer.scale))
        layer.bind_cache(index, self._make_cache(layout, num_blocks))

    def _make_cache(self, layout: KVLayout, num_blocks: int) -> list[torch.Tensor]:
        return [_make_buffer(buffer, num_blocks, self.device) for buffer in layout.buffers]


def attention_layers(model: nn.Module) -> list[Attention]:
    """A model's attention layers, by index."""
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    return sorted(layers, key=lambda layer: layer.layer_index)


def _make_buffer(buffer: KVBuffer, num_blocks: int, device: torch.device) -> torch.Tensor:
    shape = buffer.shape(num_blocks)
    order = buffer.stride_order or tuple(range(len(shape)))
    dtype = getattr(torch, buffer.dtype)
    memory = torch.full([shape[axis] for axis in order], float("nan"), dtype=dtype, device=device)
    return memory.permute([order.index(axis) for axis in range(len(shape))])


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
