"""For random platforms, models and wishes: a legal plan that honours every wish, or a refusal that
names what is at fault. A second opinion judges both; bugs planted in the planner are seen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from dougong.config.op_switches import OpSwitches
from dougong.contracts import ConfigError, OpPiece
from dougong.planner import (
    ExecutionPlan,
    FallbackLevel,
    KVCachePlanned,
    PlanInputs,
    attention_choice,
    kv_cache,
    layout_rules,
    op_site,
    ops,
    plan,
    planning,
)
from dougong.planner import attention as attention_part
from dougong.planner.attention_candidates import BackendJudge
from dougong.planner.findings import Findings
from dougong.planner.op_pieces import Claimant, build_pieces
from dougong.planner.op_refusals import op_refusals
from dougong.planner.record import plan_from_json, plan_to_json
from tests.unit.planner.judgement import Judgement
from tests.unit.planner.scenarios import scenario


def examine(inputs: PlanInputs) -> ExecutionPlan | None:
    """Plan, and hold plan or refusal against the second opinion."""
    judgement = Judgement(inputs)
    faults = judgement.must_say()
    try:
        made = plan(inputs)
    except ConfigError as exc:
        _check_refusal(str(exc), faults, is_strict=inputs.is_strict)
        return None
    assert not faults, f"not refused: {faults}"
    judgement.check(made)
    return made


def _check_refusal(told: str, faults: Collection[str], *, is_strict: bool) -> None:
    assert faults or (is_strict and "--strict refuses" in told), f"refused without need: {told}"
    for fault in faults:
        assert fault in told, f"{fault} is not in: {told}"


@seed(3)
@settings(max_examples=400, deadline=None, database=None)
@given(st.integers(0, 2**64))
def test_a_plan_is_legal_and_a_refusal_names_what_is_at_fault(number: int) -> None:
    inputs = scenario(number)
    made = examine(inputs)
    if made is not None:
        assert plan(inputs) == made
        assert plan_from_json(plan_to_json(made)) == made


def ignore_the_attention_wish(plant: pytest.MonkeyPatch) -> None:
    honest = attention_choice.choose_attention

    def choose(judge: Any, needs: Any, ask: attention_choice.AttentionAsk) -> Any:
        return honest(judge, needs, replace(ask, wish=None))

    plant.setattr(attention_part, "choose_attention", choose)


def ignore_the_block_size(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(attention_part, "_block_sizes", lambda *_: (16, 32, 64))


def forget_that_layouts_must_agree(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(attention_choice, "_layout_difference", lambda *_: "")


def number_too_many_slots(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(layout_rules, "most_blocks", lambda layout, block_size: 1 << 62)
    plant.setattr(kv_cache, "most_blocks", lambda layout, block_size: 1 << 62)


def forget_alignment(plant: pytest.MonkeyPatch) -> None:
    honest = kv_cache.plan_kv_cache

    def dense(*arguments: Any) -> KVCachePlanned:
        made = honest(*arguments)
        used = made.block_bytes - made.padding_bytes
        return replace(made, block_bytes=used, padding_bytes=0)

    plant.setattr(planning, "plan_kv_cache", dense)


def end_pieces_one_early(plant: pytest.MonkeyPatch) -> None:
    def early(claimants: Sequence[Claimant], most: int) -> tuple[OpPiece, ...]:
        built = build_pieces(claimants, most)
        return tuple(
            OpPiece(one.implementation, None if one.up_to is None else one.up_to - 1)
            for one in built
        )

    plant.setattr(op_site, "build_pieces", early)


def run_what_was_switched_off(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(op_site, "is_on", lambda key, switches: True)
    plant.setattr(op_site, "why_off", lambda key, switches: "")


def let_a_fused_slot_swallow_a_wish(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(ops, "fixed_below", lambda sites, switches: {})


def let_a_fused_slot_swallow_a_required_op(plant: pytest.MonkeyPatch) -> None:
    honest = op_site.fixed_below

    def without_plus(sites: Any, switches: OpSwitches) -> dict[str, dict[str, str]]:
        return honest(sites, replace(switches, required=frozenset()))

    plant.setattr(ops, "fixed_below", without_plus)


def say_that_another_comes_first_where_native_runs(plant: pytest.MonkeyPatch) -> None:
    honest = op_site.judge_site

    def judge(*arguments: Any) -> op_site.SiteVerdict:
        return replace(honest(*arguments), is_on=True)

    plant.setattr(ops, "judge_site", judge)


def mix_up_what_failed(plant: pytest.MonkeyPatch) -> None:
    honest: Any = BackendJudge

    def judge(*arguments: Any) -> Any:
        queries, kernels, _, *rest = arguments
        return honest(queries, kernels, dict.fromkeys(("acme/a", "acme/b"), "fault"), *rest)

    plant.setattr(attention_part, "BackendJudge", judge)


def forget_the_largest_head_size(plant: pytest.MonkeyPatch) -> None:
    honest: Any = BackendJudge

    def judge(*arguments: Any) -> Any:
        *rest, claims = arguments
        return honest(*rest, replace(claims, max_head_size=None))

    plant.setattr(attention_part, "BackendJudge", judge)


def forget_required_ops(plant: pytest.MonkeyPatch) -> None:
    def lax(verdicts: Any, running: Any, candidates: Any, switches: OpSwitches) -> Any:
        return op_refusals(verdicts, running, candidates, replace(switches, required=frozenset()))

    plant.setattr(ops, "op_refusals", lax)


def forget_strictness(plant: pytest.MonkeyPatch) -> None:
    honest = Findings.check
    plant.setattr(Findings, "check", lambda self, is_strict: honest(self, is_strict=False))


def keep_silent_about_fallbacks(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Findings, "fall_back", lambda *_: None)


def refuse_without_the_option(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Findings, "refuse", lambda self, *_, **__: self.problems.append("no"))


def capture_whatever_attention_says(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(planning, "captures_attention", lambda mode: True)


PLANTED: Mapping[str, Callable[[pytest.MonkeyPatch], None]] = {
    bug.__name__: bug
    for bug in (
        ignore_the_attention_wish,
        ignore_the_block_size,
        forget_that_layouts_must_agree,
        number_too_many_slots,
        forget_alignment,
        end_pieces_one_early,
        run_what_was_switched_off,
        let_a_fused_slot_swallow_a_wish,
        let_a_fused_slot_swallow_a_required_op,
        say_that_another_comes_first_where_native_runs,
        mix_up_what_failed,
        forget_the_largest_head_size,
        forget_required_ops,
        forget_strictness,
        keep_silent_about_fallbacks,
        refuse_without_the_option,
        capture_whatever_attention_says,
    )
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_bug_planted_in_the_planner_is_seen(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[bug](monkeypatch)
    with pytest.raises(AssertionError):
        examine_many(1000)


def examine_many(count: int) -> list[ExecutionPlan]:
    """The plans among what ``count`` scenarios give."""
    return [made for made in map(examine, map(scenario, range(count))) if made is not None]


def test_scenarios_reach_every_part_of_a_plan() -> None:
    """What nothing reaches would be proved by nothing."""
    made = examine_many(400)
    attention = [one for plan in made for one in plan.attention]
    ops = [one for plan in made for one in plan.ops]
    assert 100 < len(made) < 300
    assert {one.mode.name for one in made} == {"none", "piecewise", "decode", "full"}
    assert {one.level for plan in made for one in plan.fallbacks} == set(FallbackLevel)
    assert sum(one.assignment.decode_backend is not None for one in attention) > 10
    assert {one.author for one in attention} == {"user", "core", "platform paper"}
    assert sum(bool(one.inside) for one in ops) > 50
    assert sum(len(one.assignment.pieces) > 2 for one in ops) > 10
    assert {one.where for plan in made for one in plan.weights} == {
        "as stored", "converted at load", "dequantized at load",
    }  # fmt: skip
    assert {plan.kv_cache.block_size for plan in made} == {8, 16, 32, 64}
    left_alone = [one for op in ops for one in op.passed_over if "--custom-ops +" in one.reason]
    assert len(left_alone) > 10
