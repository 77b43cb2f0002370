"""First calls, watched: whose code raised is named; what is the device's passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import torch

from dougong.attention import FirstUse, PairedBackend, watched_builder, watched_impl
from dougong.contracts import (
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionRequest,
    DeviceLost,
    ImplementationError,
    KernelFault,
    KVCacheSpec,
    OutOfDeviceMemory,
)
from dougong.reference import ReferenceAttentionBackend, ReferenceAttentionImpl
from tests.support.paged import PagedCase

REQUEST = AttentionRequest(
    num_heads=4, num_kv_heads=2, head_dim=16, dtype="float32", kv_dtype="float32", block_size=16
)
SPEC = KVCacheSpec(num_kv_heads=2, head_dim=16, dtype="float32", block_size=16)
CPU = torch.device("cpu")


class Failing(ReferenceAttentionImpl):
    """Raises what it is told to."""

    def __init__(self, error: Exception) -> None:
        super().__init__(REQUEST, 1.0)
        self._error = error

    def forward(self, q: Any, k: Any, v: Any, kv_cache: Any, metadata: Any, out: Any) -> None:
        raise self._error


class FailingDecode(ReferenceAttentionBackend):
    name = "test/decode"

    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        return Failing(ValueError("no tile"))


def forward(impl: AttentionImpl, metadata: object = None) -> None:
    q = torch.zeros(4, 4, 16)
    impl.forward(q, q[:, :2], q[:, :2], [torch.zeros(4, 16, 2, 16)] * 2, metadata, q.clone())


NOTHING = FirstUse(lambda: None)


@pytest.mark.parametrize("error", [ValueError("no tile"), KernelFault("no tile")])
def test_a_backend_that_raises_is_named_with_the_call_and_the_cause(error: Exception) -> None:
    with pytest.raises(ImplementationError) as caught:
        forward(watched_impl("acme/flash", Failing(error), NOTHING))
    kind = type(error).__name__
    assert caught.value.failures == {"acme/flash": f"forward() raised {kind}: no tile"}
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error", [OutOfDeviceMemory("full"), DeviceLost("gone"), torch.OutOfMemoryError("full")]
)
def test_what_is_the_devices_fault_passes_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        forward(watched_impl("acme/flash", Failing(error), NOTHING))
    assert caught.value is error


def test_a_vendors_exception_is_classified_before_anybody_is_blamed() -> None:
    @contextmanager
    def classified() -> Iterator[None]:
        try:
            yield
        except ZeroDivisionError as exc:
            raise DeviceLost("gone") from exc

    watched = FirstUse(lambda: None, classified)
    with pytest.raises(DeviceLost):
        forward(watched_impl("acme/flash", Failing(ZeroDivisionError()), watched))
    with pytest.raises(ImplementationError):
        forward(watched_impl("acme/flash", Failing(ZeroDivisionError()), NOTHING))


def raising_at(call: int) -> Callable[[], None]:
    calls = iter(range(10))

    def synchronize() -> None:
        if next(calls) == call:
            raise ZeroDivisionError("late")

    return synchronize


def test_a_late_fault_belongs_to_the_call_before_and_not_to_the_one_after() -> None:
    backend = ReferenceAttentionBackend()
    common = PagedCase(query_lens=(3, 1), seq_lens=(3, 9)).common()
    metadata = backend.make_builder(SPEC, backend.kv_layout(SPEC), CPU).build(common)
    impl = backend.make_impl(REQUEST, 1.0)
    with pytest.raises(ImplementationError, match=r"acme/flash .*ZeroDivisionError: late"):
        forward(watched_impl("acme/flash", impl, FirstUse(raising_at(1))), metadata)
    with pytest.raises(ZeroDivisionError):
        forward(watched_impl("acme/flash", impl, FirstUse(raising_at(0))), metadata)


def test_a_builder_that_raises_is_named() -> None:
    builder = ReferenceAttentionBackend().make_builder(SPEC, cast(Any, None), CPU)
    broken = cast(Any, object())
    with pytest.raises(ImplementationError, match=r"acme/flash .*build\(\) raised AttributeError"):
        watched_builder("acme/flash", builder, NOTHING).build(broken)


def test_of_a_pair_the_one_that_raised_is_named() -> None:
    pair = PairedBackend(ReferenceAttentionBackend(), FailingDecode())
    builder: AttentionMetadataBuilder = watched_builder(
        pair.name, pair.make_builder(SPEC, pair.kv_layout(SPEC), CPU), NOTHING
    )
    impl = watched_impl(pair.name, pair.make_impl(REQUEST, 1.0), NOTHING)
    forward(impl, builder.build(PagedCase(query_lens=(4,), seq_lens=(9,)).common()))
    mixed = builder.build(PagedCase(query_lens=(3, 1), seq_lens=(9, 4)).common())
    with pytest.raises(ImplementationError) as caught:
        forward(impl, mixed)
    assert list(caught.value.failures) == ["test/decode"]


def test_of_a_pair_the_builder_that_raised_is_named() -> None:
    class FailingBuilder(AttentionMetadataBuilder):
        def build(self, common: Any) -> Any:
            raise KeyError("chip")

    class FailingPrefill(ReferenceAttentionBackend):
        name = "test/prefill"

        def make_builder(self, spec: Any, layout: Any, device: Any) -> AttentionMetadataBuilder:
            return FailingBuilder(spec, layout, device)

    pair = PairedBackend(FailingPrefill(), ReferenceAttentionBackend())
    made = pair.make_builder(SPEC, pair.kv_layout(SPEC), CPU)
    builder = watched_builder(pair.name, made, NOTHING)
    builder.build(PagedCase(query_lens=(1,), seq_lens=(9,)).common())
    with pytest.raises(ImplementationError) as caught:
        builder.build(PagedCase(query_lens=(1, 2), seq_lens=(9, 4)).common())
    assert list(caught.value.failures) == ["test/prefill"]
