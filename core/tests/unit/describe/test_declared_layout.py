from __future__ import annotations

import pytest

from dougong.contracts import KVCacheSpec
from dougong.describe import DeclaredBuffer, DeclaredLayout
from dougong.describe.declared_layout import layout_problems

SPEC = KVCacheSpec(num_kv_heads=3, head_dim=64, head_dim_v=32, dtype="bfloat16", block_size=16)


def buffer(*shape: int | str) -> DeclaredBuffer:
    return DeclaredBuffer(name="k", block_shape=shape)


@pytest.mark.parametrize(
    ("axis", "size"),
    [
        (7, 7),
        ("tokens", 16),
        ("heads", 3),
        ("dim", 64),
        ("dim_v", 32),
        ("dim/8", 8),
        ("heads*dim", 192),
        ("2*dim", 128),
        ("3*tokens/16", 3),
        ("dim/48", 2),
        ("5", 5),
    ],
)
def test_an_axis_has_the_size_that_its_name_has_in_the_layer(axis: int | str, size: int) -> None:
    layout = DeclaredLayout(name="l", buffers=(buffer(axis),))
    assert not list(layout_problems(layout, "x"))
    assert layout.sized(SPEC).buffers[0].block_shape == (size,)


def test_dtype_and_block_sizes_are_the_caches_where_nothing_is_said() -> None:
    layout = DeclaredLayout(name="l", buffers=(buffer("tokens"),))
    assert layout.takes("int8")
    assert layout.sized(SPEC).buffers[0].dtype == "bfloat16"
    assert layout.sized(SPEC).block_sizes == (16,)
    assert not DeclaredLayout(name="l", buffers=(), dtypes=("bfloat16",)).takes("int8")


@pytest.mark.parametrize("axis", ["", "dims", "dim*", "dim/", "dim/tokens", "-1", "dim/2/2", "1.5"])
def test_an_axis_that_is_no_size_is_refused(axis: str) -> None:
    layout = DeclaredLayout(name="l", buffers=(buffer("tokens", axis),))
    assert all("x.buffers[0].block_shape[1] is" in one for one in layout_problems(layout, "x"))
    assert list(layout_problems(layout, "x"))
