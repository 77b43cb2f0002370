"""Graphs in the real engine: they are hit, padded and passed over, and change no answer."""

from __future__ import annotations

from typing import Any

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.subject import Subject
from dougong_conformance.suite.engine import GREEDY, ask, same_answers
from dougong_conformance.suite.worker import first_dtype
from dougong_conformance.zoo.vectors import vectors_of

_SIZES = {"graph_sizes": "1,4,8", "max_num_seqs": 16}


@check("graph.engine_answers_stay")
def engine_answers_stay(subject: Subject, judge: Judge) -> None:
    for model in ("grouped", "window"):
        found = _asked(subject, judge, model, num_prompts=3)
        same_answers(judge, found["answers"], model, first_dtype(subject.facts), "through graphs")
        _require_more(judge, found, "hits", f"{model}: no step went through a graph")
        told = _numbers(found["stats"])
        judge.metric(f"{model}: steps through graphs", sum(told["hits"].values()))


@check("graph.engine_pads")
def engine_pads(subject: Subject, judge: Judge) -> None:
    found = _asked(subject, judge, "grouped", num_prompts=7)
    same_answers(
        judge,
        found["answers"],
        "grouped",
        first_dtype(subject.facts),
        "seven rows in a graph of eight",
    )
    _require_more(judge, found, "num_padding_tokens", "seven rows in a graph of eight, no padding")


@check("graph.engine_overflows_to_eager")
def engine_overflows_to_eager(subject: Subject, judge: Judge) -> None:
    found = _asked(subject, judge, "grouped", num_prompts=12)
    same_answers(
        judge,
        found["answers"],
        "grouped",
        first_dtype(subject.facts),
        "more rows than the largest graph has",
    )
    _require_more(judge, found, "num_eager_steps", "twelve rows, and no step ran eagerly")


@check("graph.host_scalars_are_not_baked")
def host_scalars_are_not_baked(subject: Subject, judge: Judge) -> None:
    """Lengths grow from one replay to the next; every logit hangs on them."""
    found = _asked(subject, judge, "odd", num_prompts=len(vectors_of("odd")))
    same_answers(judge, found["answers"], "odd", first_dtype(subject.facts), "through graphs")
    _require_more(judge, found, "hits", "no step went through a graph")


def _asked(
    subject: Subject,
    judge: Judge,
    model: str,
    *,
    num_prompts: int,
) -> dict[str, Any]:
    if not subject.facts.has_graph_runner:
        judge.not_claimed("graph_capture is not claimed")
    vectors = vectors_of(model)
    prompts = [vectors[index % len(vectors)].prompt for index in range(num_prompts)]
    dtype = first_dtype(subject.facts)
    found = ask(subject, model, dtype, prompts=prompts, params=[GREEDY], options=_SIZES)
    judge.require(
        bool(_numbers(found["stats"])), "graph_capture is claimed, and the engine captures nothing"
    )
    return found


def _numbers(stats: dict[str, Any]) -> dict[str, Any]:
    return dict(stats["rank"].get("graphs") or {})


def _require_more(judge: Judge, found: dict[str, Any], what: str, message: str) -> None:
    before, after = (_numbers(found[when])[what] for when in ("before", "stats"))
    if isinstance(after, dict):
        before, after = sum(before.values()), sum(after.values())
    judge.require(after > before, message)
