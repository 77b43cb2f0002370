from __future__ import annotations

from dataclasses import replace

import pytest

from dougong.config import Decision
from dougong.engine.graph_report import GraphReport
from dougong.engine.start_block import MAX_LINES
from dougong.engine.start_report import MemoryReport, StartReport
from dougong.planner import Fallback, FallbackLevel, PassedOver
from dougong.scheduler import RequestLimits
from tests.support.made_up_plans import chip_plan, op_plan, plain_plan

GIB = 1024**3
GRAPHS = GraphReport(sizes={"decode": (1, 4)}, num_bytes=1 << 20, max_bytes=GIB)


def report(**changes: object) -> StartReport:
    plain = StartReport(
        model="m",
        architecture="LlamaForCausalLM",
        vocab_size=288,
        dtype="float32",
        platform="cpu",
        devices=("A processor",),
        platform_reasons=("platform cpu: asked for",),
        decisions=(Decision("max_num_seqs", 7, "user", "asked for"),),
        memory=MemoryReport(limit=8 * GIB, budget=4 * GIB, weights=GIB, kv_cache=2 * GIB),
        num_kv_blocks=8,
        block_size=16,
        limits=RequestLimits(max_model_len=256, num_token_slots=128),
        plan=plain_plan(),
        seconds={"platform": 0.5, "load": 1.5},
    )
    return replace(plain, **changes)  # type: ignore[arg-type]  # any field


def decisions(count: int) -> tuple[Decision, ...]:
    user = Decision("seed", 7, "user", "asked for\nwith a line break")
    return (*(Decision(f"option{n}", n, "core", "a rule") for n in range(count)), user)


def fallbacks(count: int) -> tuple[Fallback, ...]:
    return tuple(
        Fallback(level=FallbackLevel.OP, subject=f"op op{n}", reason="no\nlibrary")
        for n in range(count)
    )


@pytest.mark.parametrize("num_decisions", [0, 1, 5, 6, 40])
@pytest.mark.parametrize("num_fallbacks", [0, 1, 50])
@pytest.mark.parametrize("num_faults", [0, 1, 9])
def test_the_block_never_has_more_than_a_dozen_lines(
    num_decisions: int, num_fallbacks: int, num_faults: int
) -> None:
    plan = replace(
        chip_plan(),
        fallbacks=fallbacks(num_fallbacks),
        unmatched=tuple(PassedOver(f"acme/{n}", "no such op") for n in range(num_fallbacks)),
    )
    told = report(
        plan=plan,
        decisions=decisions(num_decisions),
        conformance="sim 0.1.0: no certificate",
        graphs=GRAPHS,
        platform_reasons=("one\ntwo", *(f"reason {n}" for n in range(num_faults))),
        plugin_faults=tuple(f"fault {n}\nwith more" for n in range(num_faults)),
    )
    lines = told.lines()
    assert len(lines) <= MAX_LINES == 12
    assert not any("\n" in line for line in lines)
    text = "\n".join(lines)
    assert "seed = 7 [user] asked for" in text
    assert "  sim 0.1.0: no certificate" in lines
    assert "  graphs: decode, 2 sizes up to 4; 1 MiB" in lines
    for n in range(num_decisions):
        assert f"option{n} = {n}" in text


def test_a_start_without_anything_odd_has_no_line_for_it() -> None:
    assert report().lines() == [
        "m (LlamaForCausalLM, float32) on platform cpu: A processor",
        "  platform cpu: asked for",
        "  max_num_seqs = 7 [user] asked for",
        "  attention: cpu/native x 4, KV blocks of 16 in float32; ops: embedding run plain torch, "
        "linear, lm_head run cpu; execution: flat, captured: none (the platform captures no "
        "graphs)",
        "  memory: 1.00 GiB weights and 2.00 GiB KV cache of 4.00 GiB; room for 128 tokens in "
        "8 blocks of 16",
        "  ready after 2.0 s (platform 0.5, load 1.5)",
    ]


def test_fallbacks_are_counted_and_where_the_rest_stands_is_said() -> None:
    (line,) = (x for x in report(plan=chip_plan()).lines() if "fallbacks" in x)
    named = "op gate_up_act, op embedding, attention of layers 1,3, weights q4_1"
    assert f"4 fallbacks: {named} (warned of" in line
    assert "`dougong explain`" in line
    assert "acme/moe_route, acme/old_norm" in line
    many = report(plan=replace(plain_plan(), fallbacks=fallbacks(6))).lines()
    assert any("6 fallbacks: op op0, op op1, op op2, op op3 and 2 more" in x for x in many)


def test_what_the_user_asked_for_comes_first_and_what_has_no_room_is_named() -> None:
    lines = report(decisions=decisions(40)).lines()
    assert "seed = 7 [user]" in lines[2]
    (rest,) = (line for line in lines if "`dougong explain`" in line)
    assert "option39 = 39 (why:" in rest


def test_weights_that_are_not_computed_as_stored_are_told() -> None:
    assert any("weights: q4_1 dequantized at load" in x for x in report(plan=chip_plan()).lines())


def test_ops_are_told_by_family_and_not_one_by_one() -> None:
    paths = ("a", "b")
    one_family = (op_plan("linear", paths, "cpu/packed"), op_plan("rms_norm", paths, "cpu/rms"))
    lines = report(plan=replace(plain_plan(), ops=one_family)).lines()
    assert any("ops: all 2 kinds run cpu;" in line for line in lines)
    mixed = (*one_family, op_plan("rotary_embedding", paths))
    lines = report(plan=replace(plain_plan(), ops=mixed)).lines()
    assert any("linear, rms_norm run cpu, rotary_embedding run plain torch" in x for x in lines)
