"""What a backend makes is held against the contract."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dougong.attention import check_attention_parts, make_builder, make_impl
from dougong.contracts import (
    AttentionImpl,
    AttentionRequest,
    DeviceLost,
    ImplementationError,
    KVCacheSpec,
    UnsupportedError,
)
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


class Refusing(ReferenceAttentionBackend):
    """Cannot make what it said it could."""

    name = "acme/refusing"

    def __init__(self, error: Exception) -> None:
        self._error = error

    def make_impl(self, request: Any, scale: float) -> AttentionImpl:
        raise self._error

    def make_builder(self, spec: Any, layout: Any, device: Any) -> Any:
        raise self._error


def test_a_backend_that_cannot_make_its_part_is_named() -> None:
    layout = BACKEND.kv_layout(SPEC)
    backend = Refusing(UnsupportedError("needs 4 ranks"))
    with pytest.raises(ImplementationError) as caught:
        make_impl(backend, REQUEST, 0.125)
    reason = "make_impl() raised UnsupportedError: needs 4 ranks"
    assert caught.value.failures == {"acme/refusing": reason}
    with pytest.raises(ImplementationError, match=r"make_builder\(\) raised UnsupportedError"):
        make_builder(backend, SPEC, layout, torch.device("cpu"))
    with pytest.raises(DeviceLost):
        make_impl(Refusing(DeviceLost("gone")), REQUEST, 0.125)


def test_what_was_made_is_checked() -> None:
    class Wrong(ReferenceAttentionBackend):
        def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
            return WithoutOut()

    assert isinstance(make_impl(BACKEND, REQUEST, 0.125), AttentionImpl)
    with pytest.raises(ContractError, match="'out' is missing"):
        make_impl(Wrong(), REQUEST, 0.125)
