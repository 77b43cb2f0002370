"""What a backend makes is held against the contract."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dougong.attention import check_attention_parts
from dougong.contracts import AttentionImpl, AttentionRequest, KVCacheSpec
from dougong.errors import ContractError
from dougong.reference import ReferenceAttentionBackend

REQUEST = AttentionRequest(
    num_heads=4, num_kv_heads=2, head_dim=64, dtype="float32", kv_dtype="float32"
)
SPEC = KVCacheSpec(num_kv_heads=2, head_dim=64, dtype="float32", block_size=16)
BACKEND = ReferenceAttentionBackend()


class OwnConstructor(AttentionImpl):
    """How it is made is the backend's own affair."""

    def __init__(self) -> None:
        self._anything = 1

    def write_kv(self, k: Any, v: Any, kv_cache: Any, slot_mapping: Any) -> None: ...

    def forward(self, q: Any, k: Any, v: Any, kv_cache: Any, metadata: Any, out: Any) -> None: ...


class WithoutOut(OwnConstructor):
    def forward(self, q: Any, k: Any, v: Any, kv_cache: Any, metadata: Any) -> None:  # type: ignore[override]  # the fault
        raise AssertionError


class Misspelt(OwnConstructor):
    def write_kvs(self) -> None: ...


def test_what_fits_passes_alone_and_together() -> None:
    impl = BACKEND.make_impl(REQUEST, 0.125)
    builder = BACKEND.make_builder(SPEC, BACKEND.kv_layout(SPEC), torch.device("cpu"))
    check_attention_parts(BACKEND, impl, builder)
    check_attention_parts(BACKEND, impl=OwnConstructor())
    check_attention_parts(BACKEND, builder=builder)


@pytest.mark.parametrize(
    ("impl", "told"),
    [
        (None, "does not derive from dougong.contracts.attention.AttentionImpl"),
        (WithoutOut(), "parameter 'out' is missing"),
        (Misspelt(), "did you mean 'write_kv'?"),
    ],
)
def test_an_impl_that_does_not_fit_is_refused_naming_its_backend(impl: object, told: str) -> None:
    with pytest.raises(ContractError) as caught:
        check_attention_parts(BACKEND, impl=impl)
    assert told in str(caught.value)
    assert "make_impl of attention backend 'reference/torch' returned" in str(caught.value)


def test_a_builder_of_another_kind_is_refused() -> None:
    with pytest.raises(ContractError, match="make_builder of attention backend"):
        check_attention_parts(BACKEND, builder=OwnConstructor())
