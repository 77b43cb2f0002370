"""What speaks against one backend."""

from __future__ import annotations

from typing import Any

from dougong.contracts import (
    AttentionLimits,
    KernelReport,
)
from dougong.describe import OpCandidate
from tests.unit.planner.attention_harness import (
    BF16,
    FP8,
    ODD_SIZES,
    names,
    planned,
    refused,
)
from tests.unit.planner.paper import PaperBackend


def test_a_layout_that_stores_another_dtype_than_was_asked_for_is_passed_over() -> None:
    class Ignores(PaperBackend):
        def kv_layout(self, spec: Any) -> Any:
            wide = PaperBackend("wide")
            return wide.kv_layout(type(spec)(num_kv_heads=2, head_dim=64, dtype="bfloat16",
                                             block_size=spec.block_size))  # fmt: skip

    limits = AttentionLimits(dtypes=BF16, kv_dtypes=frozenset({FP8}))
    claims = {"kv_dtypes": ("bfloat16", FP8)}
    told = refused(Ignores("paper/lies", limits), config={"kv_dtype": FP8}, claims=claims)
    assert f"stores bfloat16, and no KV cache of {FP8}" in told


def test_a_missing_library_passes_a_backend_over_once_it_was_tried() -> None:
    backends = (PaperBackend("paper/fast", library="kit"), PaperBackend("reference/torch"))
    assert names(planned(*backends)) == [("paper/fast", None)]
    here = KernelReport(loaded=("kit 2.1",))
    assert names(planned(*backends, candidates={"kernels": here})) == [("paper/fast", None)]
    for missing, why in (({"kit": "too old"}, "too old"), ({}, "it was not loaded")):
        made = planned(*backends, candidates={"kernels": KernelReport(missing=missing)})
        assert names(made) == [("reference/torch", None)]
        assert made.attention[0].passed_over[0].reason == f"needs kit: {why}"
        assert "plain torch" in made.fallbacks[0].cost_hint


def test_a_backend_of_other_families_is_passed_over_whatever_is_loaded() -> None:
    class Wide(PaperBackend):
        features = frozenset({"paper.wide", "paper.deep"})

    backends = (Wide("paper/wide", library="kit"), PaperBackend("reference/torch"))
    for kernels in (None, KernelReport(loaded=("kit 2.1",)), KernelReport()):
        offered = {"kernels": kernels}
        made = planned(
            *backends, candidates=offered, claims={"features": frozenset({"paper.deep"})}
        )
        assert names(made) == [("reference/torch", None)]
        (passed_over,) = made.attention[0].passed_over
        assert passed_over.reason == "needs paper.wide, which this device does not claim"
        (fallback,) = made.fallbacks
        assert "reference/torch runs, not paper/wide: needs paper.wide" in fallback.reason
    other = planned(Wide("paper/wide"), PaperBackend("paper/other"))
    assert names(other) == [("paper/other", None)]
    assert other.fallbacks == (), "it is of another family, and nothing more general runs"
    claimed = {"features": frozenset({"paper.wide", "paper.deep"})}
    assert names(planned(*backends, claims=claimed)) == [("paper/wide", None)]


def test_a_backend_that_failed_is_passed_over_and_an_explicit_one_refused() -> None:
    backends = (PaperBackend("paper/fast"), PaperBackend("reference/torch"))
    failed = {"failed_backends": {"paper/fast": "illegal address"}}
    made = planned(*backends, candidates=failed)
    assert names(made) == [("reference/torch", None)]
    assert "failed at its first use: illegal address" in made.fallbacks[0].reason
    told = refused(*backends, candidates=failed, config={"attention_backend": "paper/fast"})
    assert "paper/fast: failed at its first use: illegal address" in told


def test_an_implementation_of_an_op_with_the_name_of_a_backend_fails_alone() -> None:
    norm = OpCandidate(key="norm", name="paper/fast", origin="paper 1")
    both = {"ops": (norm,), "failed": {"paper/fast": "illegal address"}}
    made = planned(PaperBackend("paper/fast"), candidates=both)
    assert names(made) == [("paper/fast", None)]
    assert made.ops[0].is_native
    other = both | {"failed": {}, "failed_backends": {"paper/fast": "illegal address"}}
    made = planned(PaperBackend("paper/fast"), PaperBackend("reference/torch"), candidates=other)
    assert names(made) == [("reference/torch", None)]
    assert not made.ops[0].is_native


def test_a_head_size_beyond_the_devices_is_refused_whatever_a_backend_says() -> None:
    origin = {"provenance": {"head_dim": "head_dim of the config"}}
    claims = {"max_head_size": 128}
    assert names(planned(PaperBackend("acme/any"), head_dim=128, claims=claims))
    told = refused(PaperBackend("acme/any"), head_dim=192, claims=claims, needs=origin)
    assert (
        "acme/any: it takes head size 192, and this device takes at most 128 "
        "(head_dim of the config)"
    ) in told


def test_a_reason_that_the_checkpoint_causes_says_where_the_value_came_from() -> None:
    provenance = {"head_dim": "head_dim=80, padded by a converter", "dtype": "torch_dtype"}
    told = refused(
        PaperBackend("acme/flash", ODD_SIZES), head_dim=80, needs={"provenance": provenance}
    )
    assert "takes 64, 128 (head_dim=80, padded by a converter)" in told
    only_float = AttentionLimits(dtypes=frozenset({"float16"}))
    told = refused(PaperBackend("acme/half", only_float), needs={"provenance": provenance})
    assert "dtype bfloat16; takes float16; KV dtype bfloat16; takes bfloat16" not in told
    assert "dtype bfloat16; takes float16 (torch_dtype)" in told
    told = refused(
        PaperBackend("acme/half", only_float),
        needs={"provenance": provenance},
        config={"dtype": "bfloat16"},
    )
    assert "torch_dtype" not in told
