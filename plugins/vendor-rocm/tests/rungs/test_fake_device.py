"""The calls on a fake ``cuda`` device, by rules stricter than torch's: nothing leaks to the host.

Shapes and dtypes come from the golden schemas and from fakes written here; AITER's own fakes answer
in the lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from dougong.contracts import CommonAttentionMetadata
from dougong_conformance.ladder import golden, stand_in
from dougong_conformance.ladder.fake_device import DeviceRuleBroken, FakeDevice, fake_device

from dougong_rocm import kernels_aiter, library
from dougong_rocm.attention_aiter import AiterAttentionBackend, AiterUnifiedBackend
from tests.references.install import GOLDEN
from tests.rungs.scenarios import (
    HALF,
    empty,
    keep,
    run_attention,
    run_int8_linear,
    run_plain_ops,
    run_prepared_ops,
)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """An op that writes into what it was given."""


def _as_input(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.empty_like(input)


def _product(
    XQ: torch.Tensor,  # noqa: N803 - AITER's names
    WQ: torch.Tensor,  # noqa: N803
    *args: Any,
    dtype: torch.dtype = HALF,
    **kwargs: Any,
) -> torch.Tensor:
    return torch.empty(XQ.shape[0], WQ.shape[0], dtype=dtype, device=XQ.device)


def _attended(q: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
    empty = torch.empty(0, device=q.device)
    return torch.empty_like(q), empty, empty, empty


FAKES: dict[str, Callable[..., Any]] = {
    "aiter::rms_norm": _as_input,
    "aiter::gemm_a8w8": _product,
    "aiter::mha_varlen_fwd": _attended,
    **{
        f"aiter::{name}": _nothing
        for name, call in library.CALLS.items()
        if not call.module and name not in ("rms_norm", "gemm_a8w8", "mha_varlen_fwd")
    },
}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    functions = {
        "shuffle_weight": torch.clone,
        "fused_moe": _as_input,
        "unified_attention": _nothing,
    }
    for name, function in functions.items():
        monkeypatch.setattr(library.AITER, name, function, raising=False)
    with stand_in.define(golden.read_golden(GOLDEN), {}, fakes=FAKES), fake_device("cuda") as fake:
        yield fake


@pytest.mark.parametrize(
    ("backend", "block_size"), [(AiterAttentionBackend(), 128), (AiterUnifiedBackend(), 16)]
)
def test_attention_leaves_everything_on_the_device(
    device: FakeDevice, backend: Any, block_size: int
) -> None:
    run_attention(backend, block_size, keep)
    assert (device.h2d, device.d2h) == ([], [])
    assert "aiter::reshape_and_cache_flash" in device.ops


def test_a_slot_mapping_on_the_host_is_caught(device: FakeDevice) -> None:
    def on_host(step: CommonAttentionMetadata) -> None:
        step.slot_mapping = torch.empty(5, dtype=torch.int64, device="cpu")

    with pytest.raises(DeviceRuleBroken, match="reshape_and_cache_flash"):
        run_attention(AiterAttentionBackend(), 128, on_host)


def test_lengths_on_the_host_are_caught(device: FakeDevice) -> None:
    def on_host(step: CommonAttentionMetadata) -> None:
        step.seq_lens = step.seq_lens_cpu

    with pytest.raises(DeviceRuleBroken, match="mha_varlen_fwd"):
        run_attention(AiterAttentionBackend(), 128, on_host)


def test_ops_leave_everything_on_the_device(device: FakeDevice) -> None:
    run_plain_ops()
    run_prepared_ops()
    run_int8_linear()
    assert (device.h2d, device.d2h) == ([], [])


def test_a_wait_inside_a_kernel_is_caught(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waiting(x: torch.Tensor) -> torch.Tensor:
        return x * float(x.sum())

    monkeypatch.setattr(kernels_aiter, "silu_and_mul", waiting)
    with pytest.raises(DeviceRuleBroken, match="wait"):
        kernels_aiter.silu_and_mul(empty(3, 64))


def test_an_argument_of_another_type_is_refused_by_the_schema(device: FakeDevice) -> None:
    with pytest.raises(RuntimeError, match="epsilon"):
        kernels_aiter.rms_norm(empty(3, 64), empty(64), "1e-5")  # type: ignore[arg-type]  # planted
