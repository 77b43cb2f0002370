"""Two backends as one: equal to either alone, each asked for its own sequences only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from dougong.attention import PairedBackend
from dougong.contracts import (
    AttentionMetadataBuilder,
    AttentionPhase,
    AttentionRequest,
    CommonAttentionMetadata,
    KVCacheSpec,
    KVLayout,
    PluginError,
    Support,
)
from dougong.reference import ReferenceAttentionBackend
from tests.support.paged import PagedCase, dense_attention

REQUEST = AttentionRequest(
    num_heads=4, num_kv_heads=2, head_dim=16, dtype="float32", kv_dtype="float32", block_size=16
)
SPEC = KVCacheSpec(num_kv_heads=2, head_dim=16, dtype="float32", block_size=16)


@dataclass
class Noting(ReferenceAttentionBackend):
    """The reference backend for one phase, which notes what its builder is given."""

    phase: AttentionPhase
    layout_changes: dict[str, Any] = field(default_factory=dict)
    given: list[CommonAttentionMetadata] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = f"test/{self.phase}"

    def supports(self, request: AttentionRequest) -> Support:
        if request.phase is not self.phase:
            return Support.no(f"{request.phase} steps; takes {self.phase}")
        return super().supports(request)

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        return replace(super().kv_layout(spec), **self.layout_changes)

    def workspace_bytes(self, request: AttentionRequest, max_num_tokens: int) -> int:
        return max_num_tokens if request.phase is self.phase else 1000

    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        builder, given = super().make_builder(spec, layout, device), self.given
        build = builder.build

        def note(common: CommonAttentionMetadata) -> Any:
            given.append(common)
            return build(common)

        builder.build = note  # type: ignore[method-assign]  # the point
        return builder


def pair(**decode_layout: Any) -> tuple[PairedBackend, Noting, Noting]:
    prefill = Noting(AttentionPhase.PREFILL)
    decode = Noting(AttentionPhase.DECODE, decode_layout)
    return PairedBackend(prefill, decode), prefill, decode


MIXED = {
    "in turn": ((3, 1, 5, 1, 1, 2), (9, 33, 5, 20, 1, 40)),
    "decodes first": ((1, 1, 4), (17, 3, 30)),
    "decodes last": ((16, 2, 1), (16, 18, 50)),
    "one decode inside": ((2, 1, 2), (2, 5, 40)),
    "with rows of padding": ((0, 3, 1, 0, 1), (0, 20, 7, 0, 33)),
}


@pytest.mark.parametrize("lens", MIXED.values(), ids=MIXED)
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize(("window", "cap"), [(None, None), (6, None), (7, 2.0)])
def test_a_mixed_step_has_the_bits_of_a_single_backend(
    lens: tuple[tuple[int, ...], tuple[int, ...]],
    num_kv_heads: int,
    window: int | None,
    cap: float | None,
) -> None:
    case = PagedCase(query_lens=lens[0], seq_lens=lens[1], num_kv_heads=num_kv_heads)
    backend, prefill, decode = pair()
    out = case.run(backend, sliding_window=window, soft_cap=cap)
    assert torch.equal(
        out, case.run(ReferenceAttentionBackend(), sliding_window=window, soft_cap=cap)
    )
    torch.testing.assert_close(
        out.double(), dense_attention(case, window, cap), rtol=1e-5, atol=1e-5
    )
    assert [list(one.cu_seqlens_q_cpu.diff()) for one in decode.given] == [[1] * lens[0].count(1)]
    assert [one.num_reqs for one in prefill.given] == [sum(length > 1 for length in lens[0])]


@pytest.mark.parametrize(
    ("query_lens", "seq_lens", "kind"),
    [
        ((1, 1, 1), (9, 33, 1), "decode"),
        ((1, 0, 1), (9, 0, 1), "decode"),
        ((2, 3), (9, 33), "prefill"),
        ((2, 0), (9, 0), "prefill"),
    ],
)
def test_a_step_of_one_kind_goes_whole_to_its_backend(
    query_lens: tuple[int, ...], seq_lens: tuple[int, ...], kind: str
) -> None:
    case = PagedCase(query_lens=query_lens, seq_lens=seq_lens)
    backend, prefill, decode = pair()
    assert torch.equal(case.run(backend), case.run(ReferenceAttentionBackend()))
    asked = decode if kind == "decode" else prefill
    assert len(prefill.given) + len(decode.given) == len(asked.given) == 1
    assert asked.given[0].num_reqs == sum(length > 0 for length in query_lens)


def test_each_is_asked_for_its_own_phase() -> None:
    backend, *_ = pair()
    assert backend.supports(REQUEST)
    refused = backend.supports(replace(REQUEST, has_sinks=True))
    assert "prefill by test/prefill: attention sinks" in refused.reason
    turned = PairedBackend(Noting(AttentionPhase.DECODE), Noting(AttentionPhase.PREFILL))
    assert "prefill steps; takes decode" in turned.supports(REQUEST).reason
    assert backend.workspace_bytes(REQUEST, 10) == 20


@pytest.mark.parametrize(
    "changes", [{"name": "other"}, {"alignment_bytes": 64}, {"slot_dtype": "int32"},
                {"block_sizes": (32,)}, {"reserved_blocks": 1}],
)  # fmt: skip
def test_two_that_store_differently_are_refused_with_both_layouts(changes: dict[str, Any]) -> None:
    backend, prefill, decode = pair(**changes)
    with pytest.raises(PluginError, match="'test/prefill' and 'test/decode' share no") as caught:
        backend.kv_layout(SPEC)
    for one in (prefill, decode):
        assert str(one.kv_layout(SPEC)) in str(caught.value)


def test_a_layout_that_lists_other_block_sizes_too_is_shared() -> None:
    backend, prefill, _ = pair(block_sizes=(32, 16))
    assert backend.kv_layout(SPEC) == prefill.kv_layout(SPEC)
