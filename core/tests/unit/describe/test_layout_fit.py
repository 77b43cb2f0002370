from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dougong.contracts import KVBuffer, KVCacheSpec, KVLayout
from dougong.describe import DeclaredLayout, fit_layout

SPECS = [
    KVCacheSpec(num_kv_heads=heads, head_dim=dim, dtype="bfloat16", block_size=size)
    for heads in (8, 2)
    for dim in (64, 128)
    for size in (16, 32)
]
WIDER = KVCacheSpec(num_kv_heads=4, head_dim=192, head_dim_v=96, dtype="bfloat16", block_size=64)


def blocked(spec: KVCacheSpec) -> KVLayout:
    """Keys in vectors of 16 bytes, values plain, a scale per token."""
    size, heads, dim = spec.block_size, spec.num_kv_heads, spec.head_dim
    dim_v = spec.head_dim_v or dim
    return KVLayout(
        name="blocked",
        buffers=(
            KVBuffer(name="k", block_shape=(heads, dim // 8, size, 8), dtype=spec.dtype),
            KVBuffer(name="v", block_shape=(size, heads * dim_v), dtype="int8", block_axis=1,
                     stride_order=(1, 0, 2)),
            KVBuffer(name="scales", block_shape=(2, size, 1), dtype="float32"),
        ),
        block_sizes=(16, 32, 64),
        alignment_bytes=256,
        slot_dtype="int32",
        reserved_blocks=1,
    )  # fmt: skip


def fitted(backend: Callable[[KVCacheSpec], KVLayout], *more: KVCacheSpec) -> DeclaredLayout | None:
    return fit_layout([(spec, backend(spec)) for spec in (*SPECS, *more)])


def test_axes_get_their_names_and_sizes_not_seen_follow() -> None:
    found = fitted(blocked, replace(SPECS[0], head_dim_v=32))
    assert found is not None
    assert [one.block_shape for one in found.buffers] == [
        ("heads", "dim/8", "tokens", 8),
        ("tokens", "heads*dim_v"),
        (2, "tokens", 1),
    ]
    assert [one.dtype for one in found.buffers] == ["", "int8", "float32"]
    assert found.dtypes == ("bfloat16",)
    assert found.sized(WIDER) == blocked(WIDER)


def test_any_block_size_is_told_apart_from_a_list_of_them() -> None:
    found = fitted(lambda spec: replace(blocked(spec), block_sizes=(spec.block_size,)))
    assert found is not None
    assert found.block_sizes == ()
    assert found.sized(WIDER).block_sizes == (64,)


def test_sizes_that_are_always_the_same_are_numbers() -> None:
    found = fit_layout([(SPECS[0], blocked(SPECS[0]))])
    assert found is not None
    assert found.buffers[0].block_shape == (8, 8, 16, 8)
    assert found.block_sizes == (16, 32, 64)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "by size"},
        {"alignment_bytes": 512},
        {"reserved_blocks": 2},
        {"block_sizes": (32,)},
        {"buffers": ()},
        {"buffers": (KVBuffer(name="k", block_shape=(3, 5), dtype="int8"),) * 3},
        {"buffers": (KVBuffer(name="k", block_shape=(0, -1, 2, 3), dtype="int8"),) * 3},
    ],
)
def test_what_depends_on_a_size_in_another_way_is_not_said(change: dict[str, object]) -> None:
    def odd(spec: KVCacheSpec) -> KVLayout:
        layout = blocked(spec)
        return replace(layout, **change) if spec.head_dim == 128 else layout  # type: ignore[arg-type]  # any field

    assert fitted(odd) is None


def test_an_axis_that_is_rounded_up_is_not_said() -> None:
    def padded(spec: KVCacheSpec) -> KVLayout:
        shape = (spec.block_size, -(-spec.head_dim // 96) * 96)
        buffer = KVBuffer(name="k", block_shape=shape, dtype=spec.dtype)
        return KVLayout(name="padded", buffers=(buffer,), block_sizes=(16,))

    more = replace(SPECS[0], head_dim=256)
    assert fitted(padded, more) is None
