"""Attention that nobody serves: every candidate with its reason, and what would help."""

from __future__ import annotations

import pytest

from dougong.config import Decision
from dougong.contracts import (
    AttentionLimits,
    PluginError,
)
from dougong.planner import FallbackLevel
from tests.unit.planner.attention_harness import (
    BF16,
    FP8,
    ODD_SIZES,
    PREFILL,
    names,
    planned,
    refused,
)
from tests.unit.planner.paper import PaperBackend


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 224, 256])
def test_an_unsupported_head_size_is_refused_or_served_by_one_that_can(head_dim: int) -> None:
    picky, plain = PaperBackend("acme/flash", ODD_SIZES), PaperBackend("reference/torch")
    made = planned(picky, plain, head_dim=head_dim)
    forced = {"attention_backend": "acme/flash"}
    if head_dim in (64, 128):
        assert names(made) == [("acme/flash", None)]
        assert planned(picky, plain, head_dim=head_dim, config=forced).attention[0].author == "user"
        return
    assert names(made) == [("reference/torch", None)]
    (fallback,) = made.fallbacks
    assert fallback.level is FallbackLevel.PATH
    assert f"head size {head_dim}; takes 64, 128" in fallback.reason
    told = refused(picky, plain, head_dim=head_dim, config=forced)
    assert f"attention_backend=acme/flash cannot serve attention of head_dim={head_dim}" in told
    assert f"acme/flash: head size {head_dim}; takes 64, 128" in told
    assert "reference/torch (not asked for): would do" in told
    assert "Instead: attention_backend=reference/torch." in told


def test_an_eight_bit_cache_is_refused_with_option_backends_and_what_would_do() -> None:
    claims = {"kv_dtypes": ("bfloat16", FP8)}
    plain = PaperBackend("paper/plain", AttentionLimits(dtypes=BF16))
    told = refused(plain, config={"kv_dtype": FP8}, claims=claims)
    assert f"kv_cache_dtype={FP8} (asked for)" in told
    assert f"paper/plain: KV dtype {FP8}; takes bfloat16" in told
    assert "Instead: kv_cache_dtype=bfloat16." in told
    eight = PaperBackend("paper/eight", AttentionLimits(dtypes=BF16, kv_dtypes=frozenset({FP8})))
    made = planned(plain, eight, config={"kv_dtype": FP8}, claims=claims)
    assert names(made) == [("paper/eight", None)]
    assert made.kv_cache.dtype == FP8
    assert made.kv_cache.block_bytes == 2 * 2 * 16 * 2 * 64


def test_a_dtype_is_told_as_the_user_wrote_it_too() -> None:
    claims = {"kv_dtypes": ("bfloat16", FP8)}
    plain = PaperBackend("paper/plain", AttentionLimits(dtypes=BF16))
    told = refused(plain, config={"kv_dtype": FP8}, claims=claims,
                   choices={"kv_cache_dtype": "fp8"})  # fmt: skip
    assert f"kv_cache_dtype={FP8} (asked for as fp8)" in told
    told = refused(plain, config={"kv_dtype": FP8}, claims=claims, choices={"kv_cache_dtype": FP8})
    assert f"kv_cache_dtype={FP8} (asked for)" in told


def test_a_pair_without_a_common_layout_is_refused_with_both_layouts() -> None:
    backends = (
        PaperBackend("paper/p"),
        PaperBackend("paper/d", layout="rows", is_flat=True, alignment_bytes=64),
    )
    wish = {"attention_backend": "prefill=paper/p,decode=paper/d"}
    told = refused(*backends, config=wish)
    assert "attention_backend=prefill=paper/p,decode=paper/d" in told
    assert "paper/p has plain (k [16, 2, 64] bfloat16, v [16, 2, 64] bfloat16)" in told
    assert "paper/d has rows (k [2048] bfloat16, v [2048] bfloat16, aligned to 64 bytes)" in told


def test_a_member_of_a_pair_that_cannot_serve_its_phase_is_named_with_the_phase() -> None:
    backends = (PaperBackend("paper/p", PREFILL), PaperBackend("paper/all"))
    wish = {"attention_backend": "prefill=paper/all,decode=paper/p"}
    told = refused(*backends, config=wish)
    assert "paper/p for decode: decode steps; takes prefill" in told


def test_options_that_only_together_are_the_obstacle_are_named_together() -> None:
    claims = {"kv_dtypes": ("bfloat16", FP8)}
    told = refused(
        PaperBackend("paper/fast", AttentionLimits(dtypes=BF16, head_sizes=frozenset({128}))),
        PaperBackend("paper/plain", AttentionLimits(dtypes=BF16)),
        config={"attention_backend": "paper/fast", "kv_dtype": FP8},
        claims=claims,
    )
    assert "Instead: leave attention_backend and kv_cache_dtype unset." in told


def test_what_the_platform_proposed_and_cannot_work_is_its_vendors_fault() -> None:
    proposal = (Decision("attention_backend", "acme/flash", "platform paper", "it is fast"),)
    with pytest.raises(PluginError, match=r"(?s)Platform paper proposes .*head size 80"):
        planned(
            PaperBackend("acme/flash", ODD_SIZES),
            head_dim=80,
            config={"attention_backend": "acme/flash", "explicit": frozenset()},
            decisions=proposal,
        )
