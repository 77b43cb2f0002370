"""Both backends compute what attention means, through the vendor's ops, within their limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from dougong.contracts import (
    AttentionBackend,
    AttentionPhase,
    AttentionRequest,
    GraphLevel,
    UnsupportedError,
)
from dougong_conformance.ladder.stand_in import StandIn

from dougong_ascend import attention, slots
from dougong_ascend.attention import FusedInferBackend
from dougong_ascend.attention_nz import PagedNZBackend
from tests.plugin.paged_step import PagedStep
from tests.references.refusals import VendorLimitError

pytestmark = pytest.mark.usefixtures("npu_ops")

FUSED, NZ = FusedInferBackend(), PagedNZBackend()
PREFILL = PagedStep(query_lens=(5, 130, 1), seq_lens=(5, 130, 1), block_size=128)
DECODE = PagedStep(query_lens=(1, 1, 1), seq_lens=(129, 1, 200), block_size=128)
MIXED = PagedStep(query_lens=(3, 1, 70), seq_lens=(150, 129, 70), block_size=128)
STEPS = {"prefill": PREFILL, "decode": DECODE, "mixed": MIXED}


def of_310p(step: PagedStep) -> PagedStep:
    return replace(step, dtype="float16", block_size=64)


def assert_meant(step: PagedStep, backend: AttentionBackend) -> None:
    assert backend.supports(step.request)
    torch.testing.assert_close(step.run(backend).double(), step.expected(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_one_op_serves_every_kind_of_step(step: PagedStep, dtype: str) -> None:
    assert_meant(replace(step, dtype=dtype), FUSED)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_310p_serves_every_kind_of_step(step: PagedStep) -> None:
    assert_meant(of_310p(step), NZ)


def test_310p_decodes_by_the_op_for_decoding(npu_ops: StandIn) -> None:
    npu_ops.calls.clear()
    of_310p(DECODE).run(NZ)
    assert npu_ops.calls["atb::_npu_paged_attention"] == 1
    of_310p(MIXED).run(NZ)
    assert npu_ops.calls["atb::_npu_paged_attention_splitfuse_v2"] == 1


@pytest.mark.parametrize("window", [1, 4, 128, 1000])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_window_counts_the_query_s_own_token(step: PagedStep, window: int) -> None:
    assert_meant(replace(step, window=window), FUSED)


@pytest.mark.parametrize("head_dim", [16, 64, 80, 128, 256])
def test_heads_of_every_size_within_the_limits(head_dim: int) -> None:
    assert_meant(replace(MIXED, head_dim=head_dim), FUSED)
    assert_meant(of_310p(replace(MIXED, head_dim=head_dim)), NZ)


@pytest.mark.parametrize("backend", [FUSED, NZ], ids=lambda one: one.name)
def test_rows_of_padding_reach_neither_sequence_nor_op(backend: AttentionBackend) -> None:
    step = replace(MIXED, num_padding=400)
    assert_meant(step if backend is FUSED else of_310p(step), backend)


@pytest.mark.parametrize("backend", [FUSED, NZ], ids=lambda one: one.name)
def test_sequences_without_a_query_are_left_out(backend: AttentionBackend) -> None:
    step = replace(MIXED, num_idle=3)
    assert_meant(step if backend is FUSED else of_310p(step), backend)


@pytest.mark.parametrize("backend", [FUSED, NZ], ids=lambda one: one.name)
def test_padding_that_is_not_moved_is_refused(
    backend: AttentionBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots.PaddingSlots, "settle", lambda self, slot_mapping: slot_mapping)
    step = replace(MIXED, num_padding=1)
    with pytest.raises(VendorLimitError, match="slot"):
        (step if backend is FUSED else of_310p(step)).run(backend)


def test_a_window_one_token_wider_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    made = attention.FusedInferImpl.__init__

    def widened(self: attention.FusedInferImpl, request: AttentionRequest, scale: float) -> None:
        made(self, request, scale)
        self._pre_tokens += 1

    monkeypatch.setattr(attention.FusedInferImpl, "__init__", widened)
    with pytest.raises(AssertionError):
        assert_meant(replace(MIXED, window=4), FUSED)


def test_each_row_of_padding_has_a_slot_of_its_own_in_a_reserved_block() -> None:
    given = torch.full((slots.PADDING_SLOTS,), -1, dtype=torch.int32)
    given[::3] = torch.arange(0, slots.PADDING_SLOTS, 3, dtype=torch.int32) + 100_000
    found = slots.PaddingSlots().settle(given)
    assert found.dtype == torch.int32 and found.is_contiguous()
    assert torch.equal(found[::3], given[::3])
    padding = found[given < 0]
    assert len(set(padding.tolist())) == padding.numel()
    assert int(padding.max()) < FUSED.kv_layout(MIXED.spec).reserved_blocks * 128
    assert int(padding.max()) < NZ.kv_layout(of_310p(MIXED).spec).reserved_blocks * 64


def test_longer_steps_than_any_captured_one_keep_their_slots() -> None:
    settle = slots.PaddingSlots().settle
    few = torch.tensor([-1, 900], dtype=torch.int32)
    many = torch.arange(2000, dtype=torch.int32)
    assert settle(few).tolist() == [0, 900]
    assert torch.equal(settle(many), many)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"dtype": "float32", "kv_dtype": "float32"}, "dtype float32; takes bfloat16, float16"),
        ({"kv_dtype": "int8"}, "KV dtype int8; takes bfloat16"),
        ({"head_dim": 72}, "head size 72; takes multiples of 16"),
        ({"head_dim": 512}, "head size 512; takes at most 256"),
        ({"block_size": 64}, "block size 64; takes 128"),
        ({"num_heads": 320, "num_kv_heads": 64}, "320 heads; takes at most 256"),
        ({"num_heads": 256, "num_kv_heads": 2}, "128 heads per KV head; takes at most 64"),
        ({"num_heads": 256, "num_kv_heads": 256, "head_dim": 256}, "65536 elements of K per token"),
        ({"soft_cap": 30.0}, "a cap on scores, which it does not take"),
        ({"has_sinks": True}, "attention sinks, which it does not take"),
        ({"is_mla": True}, "latent attention; takes plain"),
        ({"needs_graph": True}, "graph capture, which it does not take"),
    ],
)
def test_what_the_op_does_not_take_is_refused_with_a_reason(
    changed: dict[str, Any], reason: str
) -> None:
    answer = FUSED.supports(replace(MIXED.request, **changed))
    assert not answer and reason in answer.reason


def test_all_reasons_are_given_at_once() -> None:
    request = replace(MIXED.request, num_heads=514, head_dim=72, block_size=16)
    assert FUSED.supports(request).reason.count(";") >= 3


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"dtype": "bfloat16", "kv_dtype": "bfloat16"}, "dtype bfloat16; takes float16"),
        ({"sliding_window": 4}, "a sliding window, which it does not take"),
        ({"head_dim": 24}, "head size 24; takes multiples of 16"),
        ({"block_size": 128}, "block size 128; takes 64"),
    ],
)
def test_310p_takes_less(changed: dict[str, Any], reason: str) -> None:
    answer = NZ.supports(replace(of_310p(MIXED).request, **changed))
    assert not answer and reason in answer.reason


@pytest.mark.parametrize("phase", AttentionPhase)
@pytest.mark.parametrize("backend", [FUSED, NZ], ids=lambda one: one.name)
def test_every_phase_is_served(backend: AttentionBackend, phase: AttentionPhase) -> None:
    step = MIXED if backend is FUSED else of_310p(MIXED)
    assert backend.supports(replace(step.request, phase=phase, block_size=None))


@pytest.mark.parametrize("backend", [FUSED, NZ], ids=lambda one: one.name)
def test_steps_are_captured_around_attention_only(backend: AttentionBackend) -> None:
    assert backend.graph_support().level is GraphLevel.PIECEWISE


def test_more_sequences_than_the_op_takes_are_refused_before_the_call() -> None:
    num = attention.MAX_SEQUENCES + 1
    common = replace(
        MIXED.common(FUSED.kv_layout(MIXED.spec)),
        num_reqs=num,
        num_tokens=num,
        cu_seqlens_q_cpu=torch.arange(num + 1, dtype=torch.int32),
        seq_lens_cpu=torch.ones(num, dtype=torch.int32),
    )
    builder = FUSED.make_builder(MIXED.spec, FUSED.kv_layout(MIXED.spec), torch.device("cpu"))
    with pytest.raises(UnsupportedError, match=r"4097 sequences.*at most 4096.*--max-num-seqs"):
        builder.build(common)


def test_a_cache_beyond_what_the_op_can_count_is_refused() -> None:
    meta = torch.device("meta")
    shape = (131_073, 128, 2, 64)
    cache = [torch.empty(shape, dtype=torch.bfloat16, device=meta)] * 2
    q = torch.empty(1, 6, 64, dtype=torch.bfloat16, device=meta)
    impl = FUSED.make_impl(replace(MIXED.request, head_dim=64), 1.0)
    step = attention.FusedInferStep(1, [1], [1], q, q)
    with pytest.raises(UnsupportedError, match=r"--num-kv-blocks to 131071 or less"):
        impl.forward(q, q, q, cache, step, q)
