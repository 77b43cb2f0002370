"""Attention as a chip wants it, cache and all: blocks of 128, K and V apart, slots of 32 bits."""

from __future__ import annotations

import pytest

from dougong import LLM
from dougong.errors import ConfigError
from tests.patches.conftest import Outside
from tests.support.greedy import greedy_tokens
from tests.support.stub_plugins import PLATFORM

BODY = (
    PLATFORM.replace(
        'kv_dtypes=("float32",)',
        'kv_dtypes=("float32",), kv_block_sizes=(128,), kv_alignment_bytes=512, slot_dtype="int32"',
    )
    + """
    def get_attn_backends(self):
        return {{
            "acme/decode": "{package}.hooks:Decode",
            "acme/prefill": "{package}.hooks:Prefill",
        }}
"""
)
# Heads outermost in a block, unlike the core's; metadata of its own; one backend per phase.
BACKENDS = """
from dataclasses import dataclass

import torch

from dougong.contracts import (
    AttentionBackend, AttentionImpl, AttentionLimits, AttentionMetadataBuilder, AttentionPhase,
    KVBuffer, KVLayout,
)


@dataclass
class Sequences:
    rows: list
    block_table: torch.Tensor


class Builder(AttentionMetadataBuilder):
    def build(self, common):
        assert common.slot_mapping.dtype == torch.int32
        starts, lengths = common.cu_seqlens_q_cpu.tolist(), common.seq_lens_cpu.tolist()
        rows = [(starts[at], starts[at + 1], length) for at, length in enumerate(lengths)]
        count("metadata")
        return Sequences(rows, common.block_table)


class Impl(AttentionImpl):
    def write_kv(self, k, v, kv_cache, slot_mapping):
        for row, slot in enumerate(slot_mapping.tolist()):
            if slot >= 0:
                for new, cache in zip((k, v), kv_cache):
                    cache[slot // 128, :, slot % 128] = new[row]

    def forward(self, q, k, v, kv_cache, metadata, out):
        for at, (start, end, length) in enumerate(metadata.rows):
            blocks = metadata.block_table[at, : -(-length // 128)].long()
            keys, values = (
                cache[blocks].transpose(0, 1).flatten(1, 2)[:, :length] for cache in kv_cache
            )
            repeats = q.shape[1] // keys.shape[0]
            keys, values = keys.repeat_interleave(repeats, 0), values.repeat_interleave(repeats, 0)
            scores = torch.einsum("qhd,hkd->hqk", q[start:end], keys) * self.scale
            hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(length - end + start + 1)
            shares = scores.masked_fill(hidden, -torch.inf).softmax(-1)
            out[start:end] = torch.einsum("hqk,hkd->qhd", shares, values)
            count(self._phase)


class DecodeImpl(Impl):
    _phase = "decode"


class PrefillImpl(Impl):
    _phase = "prefill"


class Own(AttentionBackend):
    library = None

    def kv_layout(self, spec):
        shape = (spec.num_kv_heads, spec.block_size, spec.head_dim)
        return KVLayout(
            name="acme/heads-first",
            buffers=tuple(
                KVBuffer(name=name, block_shape=shape, dtype=spec.dtype) for name in ("k", "v")
            ),
            block_sizes=(128,),
            alignment_bytes=512,
            slot_dtype="int32",
        )

    def make_builder(self, spec, layout, device):
        return Builder(spec, layout, device)


class Decode(Own):
    name = "acme/decode"
    limits = AttentionLimits(
        dtypes=frozenset({"float32"}), block_sizes=(128,),
        phases=frozenset({AttentionPhase.DECODE}),
    )

    def make_impl(self, request, scale):
        return DecodeImpl(request, scale)


class Prefill(Own):
    name = "acme/prefill"
    limits = AttentionLimits(
        dtypes=frozenset({"float32"}), block_sizes=(128,),
        phases=frozenset({AttentionPhase.PREFILL}),
    )

    def make_impl(self, request, scale):
        return PrefillImpl(request, scale)
"""


def test_cache_block_size_slots_metadata_and_both_phases_are_the_backends_own(
    outside: Outside, model: str, expected: tuple[int, ...]
) -> None:
    outside.platform(BODY, BACKENDS)
    with LLM(model, platform="acme", num_kv_blocks=6) as llm:
        assert greedy_tokens(llm) == expected
        report = llm.report
    assert report.plan.kv_cache.block_size == 128
    assert report.attention_backends == {"acme/prefill": 2, "acme/decode": 2}
    counts = outside.counts()
    assert counts["prefill"] > 0 and counts["decode"] > 0 and counts["metadata"] > 0


def test_a_block_size_that_no_backend_takes_is_refused_and_never_rounded(
    outside: Outside, model: str
) -> None:
    outside.platform(BODY, BACKENDS)
    with pytest.raises(ConfigError, match="block_size=16"):
        LLM(model, platform="acme", num_kv_blocks=6, block_size=16)
