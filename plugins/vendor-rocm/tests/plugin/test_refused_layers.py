from __future__ import annotations

from dataclasses import replace

import pytest
from dougong.contracts import AttentionBackend, AttentionRequest, UnsupportedError

from dougong_rocm.attention_aiter import AiterAttentionBackend, AiterUnifiedBackend
from dougong_rocm.attention_triton import TritonAttentionBackend

TAKEN = AttentionRequest(
    num_heads=4, num_kv_heads=2, head_dim=64, dtype="float16", kv_dtype="float16"
)


@pytest.mark.parametrize(
    "backend", [AiterAttentionBackend(), AiterUnifiedBackend(), TritonAttentionBackend()]
)
def test_no_layer_is_made_that_the_backend_does_not_take(backend: AttentionBackend) -> None:
    assert backend.supports(TAKEN)
    backend.make_impl(TAKEN, 0.125)
    refused = [
        replace(TAKEN, soft_cap=20.0),
        replace(TAKEN, has_sinks=True),
        replace(TAKEN, sliding_window=8),
        replace(TAKEN, head_dim=20),
        replace(TAKEN, kv_dtype="float8_e4m3fn"),
    ]
    refused = [one for one in refused if not backend.supports(one)]
    assert refused, "each of them refuses sinks"
    for request in refused:
        with pytest.raises(UnsupportedError, match=backend.name):
            backend.make_impl(request, 0.125)
