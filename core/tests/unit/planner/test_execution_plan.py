from __future__ import annotations

from dougong.config import Decision
from dougong.contracts import AtMost
from dougong.describe import OpCandidate
from dougong.planner import ExecutionPlan, plan
from tests.unit.planner.attention_harness import DECODE, PREFILL
from tests.unit.planner.paper import PaperBackend, named, need, paper_inputs, site


def made() -> ExecutionPlan:
    sites = (site("norm", "a"), site("norm", "b"), site("slot", "c"), site("norm", "c.norm"))
    ops = (
        OpCandidate(key="norm", name="acme/norm", origin="acme 1", tokens=AtMost(8)),
        OpCandidate(key="slot", name="acme/slot", origin="acme 1"),
    )
    backends = named(PaperBackend("paper/p", PREFILL), PaperBackend("paper/d", DECODE))
    kinds = (need(0, 2, 4), need(1, 3, head_dim=128))
    return plan(
        paper_inputs(
            needs={"ops": sites, "attention": kinds},
            candidates={"ops": ops, "attention": backends},
        )
    )


def test_implementations_are_counted_where_they_run() -> None:
    assert made().implementations() == {
        "norm": {"acme/norm": 2, "native": 2},
        "slot": {"acme/slot": 1},
    }
    assert [one.is_native for one in made().ops] == [False, False, True]


def test_backends_are_counted_by_layers_whichever_phase_they_serve() -> None:
    assert made().attention_backends() == {"paper/p": 5, "paper/d": 5}


def test_later_decisions_replace_the_list_and_nothing_else() -> None:
    later = (Decision("num_kv_blocks", 7, "core", "all that is free"),)
    changed = made().with_decisions(later)
    assert changed.decisions == later
    assert changed.with_decisions(made().decisions) == made()


def test_a_rank_is_told_who_computes_what_and_no_reasons() -> None:
    told = made().rank_plan
    assert told.attention == tuple(one.assignment for one in made().attention)
    assert told.ops == tuple(one.assignment for one in made().ops)
