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


def test_slots_of_minus_one_are_not_written() -> None:
    backend = ReferenceAttentionBackend()
    spec = KVCacheSpec(num_kv_heads=1, head_dim=4, dtype="float32", block_size=4)
    request = AttentionRequest(
        num_heads=1, num_kv_heads=1, head_dim=4, dtype="float32", kv_dtype="float32"
    )
    cache = [torch.full(buffer.shape(2), torch.nan) for buffer in backend.kv_layout(spec).buffers]
    new = torch.ones(3, 1, 4)
    backend.make_impl(request, 1.0).write_kv(new, new, cache, torch.tensor([-1, 5, -1]))
    for buffer in cache:
        written = torch.isfinite(buffer.view(-1, 4)).all(-1).nonzero().flatten().tolist()
        assert written == [5]


def test_what_it_cannot_do_is_refused_with_a_reason() -> None:
    ask = {"num_heads": 1, "num_kv_heads": 1, "head_dim": 4}
    for field in ("is_mla", "has_sinks", "needs_graph"):
        request = AttentionRequest(**ask, dtype="float32", kv_dtype="float32", **{field: True})  # type: ignore[arg-type]
        verdict = ReferenceAttentionBackend().supports(request)
        assert not verdict
        assert verdict.reason


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
