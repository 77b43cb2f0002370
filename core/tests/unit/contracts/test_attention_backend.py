from __future__ import annotations

from dataclasses import replace

import pytest

from dougong.contracts import AttentionRequest, UnsupportedError
from dougong.reference import ReferenceAttentionBackend

REQUEST = AttentionRequest(
    num_heads=4, num_kv_heads=2, head_dim=64, dtype="float32", kv_dtype="float32"
)


def test_a_layer_that_a_backend_does_not_take_is_refused_with_its_reason() -> None:
    backend = ReferenceAttentionBackend()
    backend.check_supported(REQUEST)
    with pytest.raises(UnsupportedError, match=r"^reference/torch does not take .*sinks"):
        backend.check_supported(replace(REQUEST, has_sinks=True))
