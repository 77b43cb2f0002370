"""What launchers refuse, with meta tensors: none of it reaches a kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dougong_triton_kernels import attention
from dougong_triton_kernels.attention import paged_attention, paged_decode
from dougong_triton_kernels.kv_cache import write_kv
from dougong_triton_kernels.norm import fused_add_rms_norm, rms_norm
from dougong_triton_kernels.rotary import rotary_embedding


def tensor(*shape: int, dtype: torch.dtype = torch.float16, device: str = "meta") -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


def ints(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return tensor(*shape, dtype=dtype)


def decode_arguments(**changes: Any) -> dict[str, Any]:
    return {
        "q": tensor(3, 8, 64),
        "k_cache": tensor(10, 16, 2, 64),
        "v_cache": tensor(10, 16, 2, 64),
        "block_table": ints(3, 5),
        "seq_lens": ints(3),
        "scale": 0.1,
        "arch": "gfx942",
        **changes,
    }


REFUSED = [
    ({"q": tensor(3, 8, 64, dtype=torch.float64)}, TypeError, "float32, float16 and bfloat16"),
    ({"k_cache": tensor(10, 16, 2, 64, dtype=torch.bfloat16)}, TypeError, "of one dtype"),
    ({"v_cache": tensor(10, 16, 2, 64, device="cpu")}, ValueError, "one device's memory"),
    ({"k_cache": tensor(10, 16, 64, 2).transpose(2, 3)}, ValueError, r"contiguous\(\)"),
    ({"k_cache": tensor(10, 16, 2, 32)}, ValueError, "k_cache has shape"),
    ({"v_cache": tensor(10, 32, 2, 64)}, ValueError, "v_cache has shape"),
    ({"q": tensor(3, 7, 64)}, ValueError, "divides the first"),
    ({"q": tensor(24, 64)}, ValueError, "q has shape"),
    ({"seq_lens": ints(3, dtype=torch.int64)}, TypeError, "expected int32"),
    ({"seq_lens": ints(4), "block_table": ints(4, 5)}, ValueError, "seq_lens has shape"),
    ({"block_table": ints(2, 5)}, ValueError, "block_table has shape"),
    ({"block_table": ints(5, 3).T}, ValueError, "stride"),
    ({"sliding_window": 0}, ValueError, "1 or more"),
    ({"soft_cap": 0.0}, ValueError, "above 0"),
    ({"num_splits": 65}, ValueError, "1 to 64"),
    ({"out": tensor(3, 8, 32)}, ValueError, "out has shape"),
]


@pytest.mark.parametrize(("changes", "error", "says"), REFUSED, ids=[one[2] for one in REFUSED])
def test_a_decode_that_cannot_be_right_is_refused(
    changes: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        paged_decode(**decode_arguments(**changes))


def test_a_head_larger_than_any_tile_is_refused() -> None:
    cache = tensor(10, 16, 2, 512)
    changes = {"q": tensor(3, 8, 512), "k_cache": cache, "v_cache": cache}
    with pytest.raises(ValueError, match="another backend"):
        paged_decode(**decode_arguments(**changes))


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"cu_seqlens_q": ints(3)}, ValueError, "cu_seqlens_q has shape"),
        ({"cu_seqlens_q": ints(4, dtype=torch.int64)}, TypeError, "expected int32"),
        ({"max_query_len": -1}, ValueError, "counts query tokens"),
        ({"out": tensor(3, 8, 64, dtype=torch.float32)}, TypeError, "of one dtype"),
    ],
    ids=["starts", "int64 starts", "length", "dtype"],
)
def test_a_mixed_step_that_cannot_be_right_is_refused(
    changes: dict[str, Any], error: type[Exception], says: str
) -> None:
    own = {"cu_seqlens_q": ints(4), "max_query_len": 5}
    with pytest.raises(error, match=says):
        paged_attention(**decode_arguments(**{**own, **changes}))


@pytest.mark.parametrize(
    ("slots", "error"),
    [
        (ints(3, dtype=torch.int16), TypeError),
        (ints(4), ValueError),
        (tensor(3, dtype=torch.int32, device="cpu"), ValueError),
    ],
    ids=["int16", "four", "elsewhere"],
)
def test_slots_that_cannot_be_right_are_refused(
    slots: torch.Tensor, error: type[Exception]
) -> None:
    k, cache = tensor(3, 2, 64), tensor(10, 16, 2, 64)
    with pytest.raises(error):
        write_kv(k, k, cache, cache, slots)


def test_norms_refuse_other_shapes_and_dtypes() -> None:
    x, weight = tensor(3, 64), tensor(64)
    with pytest.raises(ValueError, match="weight has shape"):
        rms_norm(x, tensor(32), 1e-5)
    with pytest.raises(TypeError, match="of one dtype"):
        rms_norm(x, weight.float(), 1e-5)
    with pytest.raises(ValueError, match="residual has shape"):
        fused_add_rms_norm(x, tensor(2, 64), weight, 1e-5)
    with pytest.raises(ValueError, match="x has shape"):
        fused_add_rms_norm(tensor(3, 2, 64), tensor(3, 2, 64), weight, 1e-5)
    with pytest.raises(ValueError, match="2 or 3"):
        rms_norm(tensor(64), weight, 1e-5)


def test_rotation_refuses_other_shapes_and_dtypes() -> None:
    q, k, positions = tensor(3, 4, 64), tensor(3, 2, 64), ints(3, dtype=torch.int64)
    cache = tensor(9, 64, dtype=torch.float32)
    with pytest.raises(TypeError, match="expected float32"):
        rotary_embedding(positions, q, k, cache.half())
    with pytest.raises(ValueError, match="even and at most"):
        rotary_embedding(positions, q, k, cache[:, :63])
    with pytest.raises(ValueError, match="even and at most"):
        rotary_embedding(positions, q, k, tensor(9, 66, dtype=torch.float32))
    with pytest.raises(ValueError, match="k has shape"):
        rotary_embedding(positions, q, tensor(3, 2, 32), cache)
    with pytest.raises(TypeError, match="int32 or int64"):
        rotary_embedding(positions.float(), q, k, cache)


def test_a_right_call_passes_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(attention, "run", lambda launch: ran.append(launch.kernel))
    paged_decode(**decode_arguments(num_splits=4))
    paged_attention(**decode_arguments(cu_seqlens_q=ints(4), max_query_len=5))
    assert ran == [
        "attention.paged_decode_kernel",
        "attention.combine_splits_kernel",
        "attention.paged_attention_kernel",
    ]
