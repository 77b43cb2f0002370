"""Structured output in the real engine: every answer is of the form that was asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.subject import Subject, SubjectRaised
from dougong_conformance.suite.engine import GREEDY, ask
from dougong_conformance.suite.sampling_edits import claim_masks
from dougong_conformance.suite.worker import first_dtype, same_tokens
from dougong_conformance.zoo.models import EOS_ID, text_of
from dougong_conformance.zoo.vectors import vectors_of

_MODEL = "grouped"
_CHOICE = ["alpha", "beta", "gamma ray"]
_REGEX = "[a-c]{2,6}x[0-9]"
_GRAMMAR = 'start: part "-" part\npart: "ab" | "c" | "(" part ")"'
_SCHEMA = {
    "type": "object",
    "properties": {
        "on": {"type": "boolean"},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["on", "n"],
    "additionalProperties": False,
}


def _is_object(text: str) -> bool:
    found = json.loads(text)
    return (
        isinstance(found, dict)
        and found.keys() == {"on", "n"}
        and isinstance(found["on"], bool)
        and isinstance(found["n"], int)
        and 0 <= found["n"] <= 99
    )


_KINDS: tuple[tuple[dict[str, Any], Callable[[str], Any]], ...] = (
    ({"choice": _CHOICE}, lambda text: text in _CHOICE),
    ({"regex": _REGEX}, lambda text: re.fullmatch(_REGEX, text)),
    ({"json_schema": json.dumps(_SCHEMA)}, _is_object),
    ({"grammar": _GRAMMAR}, lambda text: re.fullmatch(r"\(*(ab|c)\)*-\(*(ab|c)\)*", text)),
)
_WAYS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 1.5, "seed": 3},
    {"temperature": 1.0, "seed": 4, "top_k": 20, "repetition_penalty": 1.2},
)


@check("engine.structured_output")
def structured_output(subject: Subject, judge: Judge) -> None:
    """Greedy and hot, of several kinds, beside requests that ask for nothing."""
    dtype = first_dtype(subject.facts)
    vectors = vectors_of(_MODEL)
    _check_refused(subject, judge, dtype)
    kinds = [(wish, is_right) for wish, is_right in _KINDS for _ in _WAYS]
    params = [
        {"max_tokens": 60, **way, "structured_output": wish} for wish, _ in _KINDS for way in _WAYS
    ]
    plain = [{**GREEDY, "logprobs": None}] * len(vectors)
    prompts = [vectors[index % len(vectors)].prompt for index in range(len(params))]
    found = ask(
        subject,
        _MODEL,
        dtype,
        prompts=[*prompts, *(one.prompt for one in vectors)],
        params=[*params, *plain],
    )
    answers = [one[0] for one in found["answers"]]
    for (wish, is_right), answer in zip(kinds, answers, strict=False):
        tokens, told = answer["tokens"], json.dumps(wish)
        text = text_of(tokens)
        judge.require(
            answer["finish"] == "stop" and EOS_ID not in tokens[:-1],
            f"{told}: {text!r} ends with {answer['finish']}; expected stop",
        )
        judge.require(_holds(is_right, text), f"{told}: the answer is {text!r}")
    for vector, answer in zip(vectors, answers[len(params) :], strict=True):
        same_tokens(judge, answer["tokens"], vector, "beside requests with a grammar")


def _holds(is_right: Callable[[str], Any], text: str) -> bool:
    try:
        return bool(is_right(text))
    except ValueError:
        return False


def _check_refused(subject: Subject, judge: Judge, dtype: str) -> None:
    """A platform whose worker takes no masks refuses the request, and does not compute it."""
    if subject.facts.takes_grammar_masks:
        return
    params = [{**GREEDY, "logprobs": None, "structured_output": {"choice": _CHOICE}}]
    try:
        ask(subject, _MODEL, dtype, params=params)
    except SubjectRaised as exc:
        judge.require(
            "RequestError" in exc.raised.kinds,
            f"structured output without masks ends in {exc.raised.kind}: {exc.raised.message}",
        )
        claim_masks(subject, judge)
    judge.fail("the worker takes no grammar masks, and a request with a grammar is computed")
