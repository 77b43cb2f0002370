"""The reference backend against torch's own attention, one sequence at a time."""

from __future__ import annotations

import pytest
import torch

from dougong.contracts import AttentionRequest, CommonAttentionMetadata, KVCacheSpec
from dougong.reference import ReferenceAttentionBackend
from tests.support.paged import PagedCase, dense_attention


@pytest.mark.parametrize(("window", "cap"), [(None, None), (5, None), (None, 3.0), (7, 2.0)])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_any_mix_of_prefill_and_decode_equals_dense_attention(
    window: int | None, cap: float | None, kv_heads: int
) -> None:
    case = PagedCase(
        query_lens=(9, 1, 3, 1), seq_lens=(9, 33, 20, 1), num_heads=4, num_kv_heads=kv_heads
    )
    out = case.run(ReferenceAttentionBackend(), sliding_window=window, soft_cap=cap)
    torch.testing.assert_close(
        out.double(), dense_attention(case, window, cap), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    "kv_dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_narrow_cache_rounds_keys_and_values_once_and_nothing_else(
    kv_dtype: torch.dtype, dtype: torch.dtype
) -> None:
    """Keys and values of unit variance move the result by less than the distance of 1 to the next
    number of the cache's dtype: 0.125 for e4m3, 0.25 for e5m2."""
    case = PagedCase(query_lens=(9, 1, 3), seq_lens=(9, 33, 20), dtype=dtype, kv_dtype=kv_dtype)
    out = case.run(ReferenceAttentionBackend(), sliding_window=12).double()
    rounded = dense_attention(case, 12, stored_as=kv_dtype)
    own_rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(out, rounded, rtol=own_rounding, atol=max(own_rounding, 1e-5))
    assert (out - dense_attention(case, 12)).abs().max() < torch.finfo(kv_dtype).eps + own_rounding


@pytest.mark.parametrize("kv_dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_what_an_8_bit_cache_cannot_hold_is_cut_to_its_largest_number(
    kv_dtype: torch.dtype,
) -> None:
    impl = ReferenceAttentionBackend().make_impl(request(kv_dtype=name_of(kv_dtype)), 1.0)
    cache = [torch.zeros(1, 4, 1, 4).to(kv_dtype) for _ in range(2)]
    new = torch.tensor([1e9, -1e9, 2.0, 0.0]).view(1, 1, 4)
    impl.write_kv(new, new, cache, torch.tensor([2]))
    most = torch.finfo(kv_dtype).max
    for buffer in cache:
        assert buffer[0, 2, 0].float().tolist() == [most, -most, 2.0, 0.0]


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def request(**changes: object) -> AttentionRequest:
    asked: dict[str, object] = {
        "num_heads": 1, "num_kv_heads": 1, "head_dim": 4, "dtype": "float32",
        "kv_dtype": "float32",
    }  # fmt: skip
    return AttentionRequest(**(asked | changes))  # type: ignore[arg-type]  # built by name


@pytest.mark.parametrize(
    ("slots", "expected"), [([-1, 5, -1], [5]), ([3, 7, -1], [3, 7]), ([-1, -1, -1], [])]
)
def test_slots_of_minus_one_are_not_written(slots: list[int], expected: list[int]) -> None:
    backend = ReferenceAttentionBackend()
    spec = KVCacheSpec(num_kv_heads=1, head_dim=4, dtype="float32", block_size=4)
    cache = [torch.full(buffer.shape(2), torch.nan) for buffer in backend.kv_layout(spec).buffers]
    new = torch.arange(3.0).view(3, 1, 1).expand(3, 1, 4)
    backend.make_impl(request(), 1.0).write_kv(new, new, cache, torch.tensor(slots))
    for buffer in cache:
        flat = buffer.view(-1, 4)
        assert torch.isfinite(flat).all(-1).nonzero().flatten().tolist() == expected
        assert flat[expected, 0].tolist() == [slots.index(slot) for slot in expected]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"is_mla": True}, "latent attention"),
        ({"has_sinks": True}, "attention sinks"),
        ({"needs_graph": True}, "graph capture"),
        ({"kv_dtype": "int8"}, "KV dtype int8; takes bfloat16, float16, float32, float8"),
        ({"dtype": "float8_e4m3fn"}, "dtype float8_e4m3fn; takes"),
    ],
)
def test_what_it_cannot_do_is_refused_with_a_reason(
    changes: dict[str, object], reason: str
) -> None:
    assert reason in ReferenceAttentionBackend().supports(request(**changes)).reason


def test_any_plain_layer_is_taken_whatever_its_sizes() -> None:
    for head_dim, block_size, window in ((7, 3, None), (576, 1, 5)):
        asked = request(head_dim=head_dim, block_size=block_size, sliding_window=window)
        assert ReferenceAttentionBackend().supports(asked)


def test_metadata_is_host_data_so_that_no_layer_waits_for_the_device() -> None:
    backend = ReferenceAttentionBackend()
    spec = KVCacheSpec(num_kv_heads=1, head_dim=4, dtype="float32", block_size=4)
    builder = backend.make_builder(spec, backend.kv_layout(spec), torch.device("cpu"))
    lens = torch.tensor([3, 2], dtype=torch.int32)
    starts = torch.tensor([0, 3, 4], dtype=torch.int32)
    common = CommonAttentionMetadata(
        num_reqs=2,
        num_tokens=4,
        max_query_len=3,
        max_seq_len=3,
        cu_seqlens_q=starts,
        cu_seqlens_q_cpu=starts,
        seq_lens=lens,
        seq_lens_cpu=lens,
        block_table=torch.zeros(2, 1, dtype=torch.int32),
        slot_mapping=torch.arange(4),
    )
    metadata = builder.build(common)
    assert metadata.starts == [0, 3, 4]
    assert metadata.seq_lens == [3, 2]
