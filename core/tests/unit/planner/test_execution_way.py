"""Flat or eager: what decides, and what is told."""

from __future__ import annotations

import pytest

from dougong.contracts import ConfigError
from dougong.planner import plan
from tests.unit.planner.paper import paper_inputs

WHY = "an argument of rms_norm at norm comes from no op"


def test_a_model_that_is_a_list_of_ops_runs_flat() -> None:
    made = plan(paper_inputs(needs={"num_calls": 42}))
    assert made.execution.name == made.rank_plan.execution == "flat"
    assert made.execution.reason == "the model is a list of 42 calls of ops and attention"
    assert made.fallbacks == ()


def test_one_that_is_none_falls_back_with_the_reason() -> None:
    made = plan(paper_inputs(needs={"not_flat": WHY}))
    assert made.execution.name == made.rank_plan.execution == "eager"
    (fallback,) = made.fallbacks
    assert (fallback.subject, fallback.reason) == (
        "execution",
        f"the model is no list of ops: {WHY}",
    )
    with pytest.raises(ConfigError, match="no list of ops"):
        plan(paper_inputs(needs={"not_flat": WHY}, is_strict=True))


def test_what_was_asked_for_is_obeyed_or_refused() -> None:
    made = plan(paper_inputs(config={"execution": "eager"}))
    assert (made.execution.name, made.fallbacks) == ("eager", ())
    assert made.execution.reason == "execution=eager was asked for"
    assert plan(paper_inputs(config={"execution": "flat"})).execution.name == "flat"
    with pytest.raises(ConfigError, match=f"execution=flat cannot be had.*{WHY}.*leave it out"):
        plan(paper_inputs(config={"execution": "flat"}, needs={"not_flat": WHY}))
