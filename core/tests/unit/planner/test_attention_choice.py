"""Which backend serves which layers, at which block size."""

from __future__ import annotations

from dougong.contracts import (
    AttentionLimits,
    AttentionPhase,
    KernelReport,
)
from tests.unit.planner.attention_harness import (
    BF16,
    DECODE,
    PREFILL,
    names,
    planned,
    refused,
)
from tests.unit.planner.paper import PaperBackend, need


def test_the_first_that_serves_the_layers_is_taken_and_the_rest_is_not_asked() -> None:
    made = planned(PaperBackend("paper/fast"), PaperBackend("paper/slow"))
    assert names(made) == [("paper/fast", None)]
    (passed,) = made.attention[0].passed_over
    assert (passed.name, passed.reason) == ("paper/slow", "not asked: paper/fast comes first")
    assert made.attention[0].author == "core"
    assert made.fallbacks == ()


def test_the_platforms_preference_comes_before_the_order() -> None:
    made = planned(PaperBackend("paper/a"), PaperBackend("paper/b"), preferred="paper/b")
    assert names(made) == [("paper/b", None)]
    assert made.attention[0].author == "platform paper"
    assert made.fallbacks == ()


def test_two_backends_that_share_a_layout_serve_one_layer_where_none_serves_all() -> None:
    made = planned(PaperBackend("paper/p", PREFILL), PaperBackend("paper/d", DECODE))
    assert names(made) == [("paper/p", "paper/d")]
    assert made.fallbacks == ()
    assert made.attention_backends() == {"paper/p": 2, "paper/d": 2}


def test_a_backend_that_mixes_no_steps_is_paired_with_itself() -> None:
    both = AttentionLimits(
        dtypes=BF16, phases=frozenset({AttentionPhase.PREFILL, AttentionPhase.DECODE})
    )
    assert names(planned(PaperBackend("paper/split", both))) == [("paper/split", "paper/split")]


def test_an_explicit_pair_is_obeyed() -> None:
    backends = (PaperBackend("paper/all"), PaperBackend("paper/p"), PaperBackend("paper/d"))
    wish = {"attention_backend": "prefill=paper/p,decode=paper/d"}
    made = planned(*backends, config=wish)
    assert names(made) == [("paper/p", "paper/d")]
    assert made.attention[0].author == "user"


def test_a_pair_that_a_better_backend_would_have_served_is_a_fallback() -> None:
    backends = (
        PaperBackend("paper/p", PREFILL),
        PaperBackend("paper/d", DECODE, library="paper-kernels"),
        PaperBackend("paper/slow-d", DECODE),
    )
    kernels = KernelReport(missing={"paper-kernels": "no such file"})
    made = planned(*backends, candidates={"kernels": kernels})
    assert names(made) == [("paper/p", "paper/slow-d")]
    (fallback,) = made.fallbacks
    assert "paper/d: needs paper-kernels: no such file" in fallback.reason


def test_layers_with_and_without_a_window_have_plans_of_their_own() -> None:
    full_only = AttentionLimits(dtypes=BF16)
    kinds = (need(0, 2), need(1, 3, sliding_window=8))
    made = planned(
        PaperBackend("paper/fast", full_only),
        PaperBackend("reference/torch"),
        needs={"attention": kinds},
    )
    assert names(made) == [("paper/fast", None), ("reference/torch", None)]
    assert made.attention[1].assignment.request.sliding_window == 8
    (fallback,) = made.fallbacks
    assert fallback.subject == "attention of layers 1,3"


def test_a_block_size_nobody_asked_for_follows_the_better_backend() -> None:
    made = planned(PaperBackend("paper/fast", block_sizes=(64,)), PaperBackend("reference/torch"))
    assert names(made) == [("paper/fast", None)]
    assert made.kv_cache.block_size == made.rank_plan.block_size == 64
    assert made.attention[0].assignment.request.block_size == 64
    (decision,) = [one for one in made.decisions if one.field == "block_size"]
    assert (decision.value, decision.author) == (64, "backend paper/fast")


def test_a_block_size_that_was_asked_for_is_kept_or_refused() -> None:
    fast, slow = PaperBackend("paper/fast", block_sizes=(64,)), PaperBackend("reference/torch")
    made = planned(fast, slow, config={"block_size": 32})
    assert (made.kv_cache.block_size, names(made)) == (32, [("reference/torch", None)])
    assert "no blocks of 32 tokens; takes 64" in made.fallbacks[0].reason
    told = refused(fast, config={"block_size": 32}, claims={"kv_block_sizes": (16, 64)})
    assert "block_size=32 (asked for)" in told
    assert "Instead: block_size=64." in told


def test_all_kinds_of_layers_share_one_block_size() -> None:
    full_only = AttentionLimits(dtypes=BF16)
    kinds = (need(0), need(1, sliding_window=8))
    made = planned(
        PaperBackend("paper/full", full_only, block_sizes=(32, 128)),
        PaperBackend("paper/window", block_sizes=(64, 128)),
        needs={"attention": kinds},
    )
    assert names(made) == [("paper/full", None), ("paper/window", None)]
    assert made.kv_cache.block_size == 128


def test_the_kind_with_more_layers_decides_which_block_size_is_better() -> None:
    kinds = (need(0, sliding_window=8), need(1, 2, 3))
    made = planned(
        PaperBackend("paper/full", AttentionLimits(dtypes=BF16), block_sizes=(32,)),
        PaperBackend(
            "paper/small",
            AttentionLimits(dtypes=BF16, sliding_window=True, block_sizes=(16,)),
        ),
        PaperBackend("reference/torch"),
        needs={"attention": kinds},
    )
    assert names(made) == [("reference/torch", None), ("paper/full", None)]
    assert made.kv_cache.block_size == 32


def test_kinds_that_can_share_no_block_size_are_refused() -> None:
    full_only = AttentionLimits(dtypes=BF16, head_sizes=frozenset({64}))
    other = AttentionLimits(dtypes=BF16, sliding_window=True, head_sizes=frozenset({32}))
    kinds = (need(0), need(1, head_dim=32, sliding_window=8))
    told = refused(
        PaperBackend("paper/full", full_only, block_sizes=(32,)),
        PaperBackend("paper/window", other, block_sizes=(64,)),
        needs={"attention": kinds},
    )
    assert "no blocks of" in told


def test_workspace_of_a_pair_counts_both() -> None:
    backends = (PaperBackend("a", PREFILL, workspace=5), PaperBackend("b", DECODE, workspace=7))
    assert planned(*backends).attention[0].workspace_bytes == 12


def test_latent_attention_stores_one_row_per_token() -> None:
    mla = AttentionLimits(dtypes=BF16, mla=True)
    latent = need(0, kv_lora_rank=512, rope_head_dim=64, num_kv_heads=8)
    made = planned(
        PaperBackend("paper/plain"), PaperBackend("paper/mla", mla), needs={"attention": (latent,)}
    )
    assert names(made) == [("paper/mla", None)]
    request = made.attention[0].assignment.request
    assert (request.is_mla, request.kv_lora_rank, request.rope_head_dim) == (True, 512, 64)
    assert made.attention[0].assignment.layout.buffers[0].block_shape == (16, 1, 576)
