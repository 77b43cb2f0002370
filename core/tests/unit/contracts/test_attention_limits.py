from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dougong.contracts import AttentionLimits, AttentionPhase, AttentionRequest

REQUEST = AttentionRequest(
    num_heads=8, num_kv_heads=2, head_dim=64, dtype="bfloat16", kv_dtype="bfloat16", block_size=16
)
LIMITS = AttentionLimits(
    dtypes=frozenset({"bfloat16"}),
    head_sizes=frozenset({64, 128}),
    max_head_size=128,
    block_sizes=(16, 32),
)


def test_a_request_within_the_limits_is_supported() -> None:
    assert LIMITS.check(REQUEST)
    assert LIMITS.check(replace(REQUEST, block_size=None))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dtype": "float32", "kv_dtype": "bfloat16"}, "dtype float32; takes bfloat16"),
        ({"kv_dtype": "float8_e4m3fn"}, "KV dtype float8_e4m3fn; takes bfloat16"),
        ({"head_dim": 80}, "head size 80; takes 64, 128"),
        ({"head_dim": 256}, "takes at most 128"),
        ({"block_size": 8}, "block size 8; takes 16, 32"),
        ({"sliding_window": 128}, "a sliding window"),
        ({"soft_cap": 30.0}, "a cap on scores"),
        ({"has_sinks": True}, "attention sinks"),
        ({"needs_graph": True}, "graph capture"),
        ({"is_mla": True, "kv_lora_rank": 512}, "latent attention; takes plain"),
    ],
)
def test_what_is_beyond_them_is_named(change: dict[str, Any], words: str) -> None:
    assert words in LIMITS.check(replace(REQUEST, **change)).reason


def test_everything_beyond_the_limits_is_in_one_answer() -> None:
    reason = LIMITS.check(replace(REQUEST, head_dim=80, has_sinks=True)).reason

    assert "head size 80" in reason
    assert "attention sinks" in reason


def test_a_backend_of_decode_alone_refuses_mixed_steps() -> None:
    limits = replace(LIMITS, phases=frozenset({AttentionPhase.DECODE}))

    assert limits.check(replace(REQUEST, phase=AttentionPhase.DECODE))
    assert "mixed steps; takes decode" in limits.check(REQUEST).reason


def test_latent_attention_is_taken_by_its_own_backends_only() -> None:
    limits = replace(LIMITS, mla=True)

    assert "takes latent attention only" in limits.check(REQUEST).reason
