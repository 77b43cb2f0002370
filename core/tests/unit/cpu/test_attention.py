"""The native backend: against the definition, and bitwise against itself in other company."""

from __future__ import annotations

import pytest
import torch

from dougong.contracts import AttentionRequest
from dougong.cpu.attention import NativeAttentionBackend
from tests.support.paged import PagedCase, dense_attention


@pytest.mark.parametrize(("window", "cap"), [(None, None), (5, None), (7, 2.0)])
@pytest.mark.parametrize("block_size", [16, 64])
def test_any_mix_of_prefill_and_decode_equals_dense_attention(
    window: int | None, cap: float | None, block_size: int
) -> None:
    case = PagedCase(query_lens=(40, 1, 3), seq_lens=(40, 70, 20), block_size=block_size)
    out = case.run(NativeAttentionBackend(), sliding_window=window, soft_cap=cap)
    torch.testing.assert_close(
        out.double(), dense_attention(case, window, cap), rtol=1e-5, atol=1e-5
    )


def test_block_size_does_not_change_a_bit() -> None:
    outs = [
        PagedCase(query_lens=(5, 1), seq_lens=(37, 50), block_size=size).run(
            NativeAttentionBackend()
        )
        for size in (16, 32, 128)
    ]
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"head_dim": 24}, "head_dim=24"),
        ({"block_size": 8}, "block_size=8"),
        ({"dtype": "float16"}, "float16"),
        ({"has_sinks": True}, "sinks"),
        ({"is_mla": True}, "latent"),
    ],
)
def test_what_it_cannot_do_is_refused_with_a_reason(change: dict[str, object], reason: str) -> None:
    asked: dict[str, object] = {
        "num_heads": 2,
        "num_kv_heads": 2,
        "head_dim": 64,
        "dtype": "float32",
        "kv_dtype": "float32",
        "block_size": 16,
    }
    request = AttentionRequest(**(asked | change))  # type: ignore[arg-type]
    verdict = NativeAttentionBackend().supports(request)
    assert not verdict
    assert reason in verdict.reason
