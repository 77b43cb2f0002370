"""The whole plan: every problem at once, each fallback level, strict, no torch, no change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dougong.config.op_switches import OpSwitches
from dougong.contracts import AttentionLimits, ConfigError, KernelReport, MultipleOf, Needs
from dougong.describe import OpCandidate, WeightNeed
from dougong.planner import Fallback, FallbackLevel, plan
from tests.unit.planner.paper import PaperBackend, named, need, paper_inputs, site

WIDE = AttentionLimits(dtypes=frozenset({"bfloat16"}), head_sizes=frozenset({128}))
NORM = OpCandidate(
    key="norm", name="acme/norm", origin="acme 1.0", when=Needs(hidden_size=MultipleOf(7))
)
AWQ = WeightNeed(format="awq", is_quantized=True, is_readable=False)
Q4 = WeightNeed(format="q4_1", is_quantized=True, is_readable=True)

OP: dict[str, Any] = {"candidates": {"ops": (NORM,)}}
PATH: dict[str, Any] = {"needs": {"weights": (Q4,)}}
PLATFORM: dict[str, Any] = {
    "platform": "cpu",
    "platforms_not_here": {"acme": "no acme device", "zeta": "its driver is missing"},
}


def fallback_of(**changes: Any) -> Fallback:
    (fallback,) = plan(paper_inputs(**changes)).fallbacks
    return fallback


def test_a_plain_start_has_no_fallback_and_says_what_it_is() -> None:
    made = plan(paper_inputs(choices={"seed": 3}, platform_wheel="dougong-paper 1.2"))
    assert made.fallbacks == ()
    assert (made.model, made.platform, made.arch) == ("paper/model", "paper", "paper1")
    assert (made.choices, made.platform_wheel) == ({"seed": 3}, "dougong-paper 1.2")
    assert made.kernels_loaded is None
    loaded = paper_inputs(candidates={"kernels": KernelReport(("kit 2",), {"other": "absent"})})
    assert plan(loaded).kernels_loaded == ("kit 2",)
    assert plan(loaded).kernels_missing == {"other": "absent"}


def test_each_level_of_fallback_is_told_with_its_subject_and_reason() -> None:
    op, path, platform = (fallback_of(**changes) for changes in (OP, PATH, PLATFORM))
    assert (op.level, op.subject) == (FallbackLevel.OP, "op norm")
    assert (path.level, path.subject) == (FallbackLevel.PATH, "weights q4_1")
    assert (platform.level, platform.subject) == (FallbackLevel.PLATFORM, "platform cpu")
    assert platform.reason == "acme: no acme device; zeta: its driver is missing"


def test_fallbacks_come_in_the_order_of_the_levels() -> None:
    made = plan(paper_inputs(**OP, **PATH, **PLATFORM))
    assert [one.level for one in made.fallbacks] == list(FallbackLevel)


@pytest.mark.parametrize("changes", [OP, PATH, PLATFORM])
def test_strict_refuses_each_of_them(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(paper_inputs(is_strict=True, **changes))
    (problem,) = caught.value.problems
    assert problem.startswith("--strict refuses any fallback, and there is one: ")
    assert str(fallback_of(**changes)) in problem


def test_strict_lists_every_fallback_and_lets_a_start_without_any_be() -> None:
    assert plan(paper_inputs(is_strict=True)).fallbacks == ()
    with pytest.raises(ConfigError) as caught:
        plan(paper_inputs(is_strict=True, **OP, **PATH, **PLATFORM))
    assert len(caught.value.problems) == 3


def test_every_problem_is_in_the_one_refusal() -> None:
    with pytest.raises(ConfigError) as caught:
        plan(
            paper_inputs(
                needs={"weights": (AWQ,), "attention": (need(0), need(1, sliding_window=4))},
                candidates={
                    "attention": named(PaperBackend("acme/wide", WIDE)),
                    "ops": (NORM,),
                },
                switches=OpSwitches(
                    required=frozenset({"norm"}), implementations={"act": "acme/act"}
                ),
                config={"block_size": 32},
            )
        )
    problems = caught.value.problems
    assert len(problems) == 5
    told = str(caught.value)
    assert told.startswith("paper/model cannot run as asked on platform paper:")
    for part in (
        "block_size=32 (asked for)",
        "acme/wide: head size 64; takes 128",
        "acme/wide: head size 64; takes 128; a sliding window, which it does not take",
        "--custom-ops +norm cannot be obeyed",
        "--op act=acme/act cannot be obeyed",
        "stored as awq",
    ):
        assert part in told


def test_the_same_inputs_give_the_same_plan() -> None:
    assert plan(paper_inputs(**OP, **PATH)) == plan(paper_inputs(**OP, **PATH))


def test_what_a_rank_is_told_is_in_the_plan() -> None:
    sites = (site("norm", "model.norm", hidden_size=512), site("act", "sampler.act"))
    told = plan(paper_inputs(needs={"ops": sites})).rank_plan
    assert told.block_size == 16
    assert [one.layer_indices for one in told.attention] == [(0, 1)]
    assert [path for one in told.ops for path in one.paths] == ["model.norm", "sampler.act"]


def test_planning_imports_no_torch() -> None:
    root = Path(__file__).parents[3]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from tests.unit.planner.paper import paper_inputs;"
        "from dougong.planner import plan, compare, record;"
        "made = plan(paper_inputs());"
        "assert record.plan_from_json(record.plan_to_json(made)) == made;"
        "assert not compare.differences(made, made);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(root)], check=True, timeout=60)
