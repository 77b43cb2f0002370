"""What requests ask of sampling, through the real engine: each for itself, whatever runs beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.subject import Subject
from dougong_conformance.suite.engine import GREEDY, ask, judge_logits, legal_noise_of, same_logits
from dougong_conformance.suite.engine_scheduling import dtype_and_blocks, repeated, room_for
from dougong_conformance.suite.worker import first_dtype
from dougong_conformance.zoo.decoder import Decoder
from dougong_conformance.zoo.edited import Edits, sure_answer
from dougong_conformance.zoo.models import MODELS
from dougong_conformance.zoo.vectors import vectors_of

_MODEL = "grouped"
_MARGIN = 6.0  # times the legal noise, as that of stored answers
_LEAST_SURE = 12  # tokens that no rounding changes, of all answers of a check
_PENALTIES: tuple[dict[str, Any], ...] = (
    {"repetition_penalty": 1.6},
    {"frequency_penalty": 1.5},
    {"presence_penalty": 2.0},
    {"repetition_penalty": 0.8, "frequency_penalty": -0.5, "presence_penalty": 1.0},
)
_AGAIN: dict[str, Any] = {"frequency_penalty": -2.0, "presence_penalty": -2.0}
"""Whoever has come comes again, as long as it is counted."""
_CHANGES: tuple[dict[str, Any], ...] = (
    {"logit_bias": [[7, 8.0], [40, 6.5], [41, -100.0]]},
    {"allowed_token_ids": [3, 11, 29, 60, 61, 90]},
    {"bad_token_ids": [[12], [30, 31]]},
    {"repetition_penalty": 1.4, "logit_bias": [[20, 3.0]], "presence_penalty": 1.0},
)
_DRAWN: tuple[dict[str, Any], ...] = (
    {"temperature": 1.3, "seed": 11, "top_k": 30, "top_p": 0.9},
    {"temperature": 0.8, "seed": 5, "min_p": 0.2},
    {"temperature": 1.0, "seed": 11, "allowed_token_ids": list(range(10, 40))},
)


@check("engine.penalties")
def penalties(subject: Subject, judge: Judge) -> None:
    """Alone or together, each answer is the one that the formulas give."""
    prompts = [one.prompt for one in vectors_of(_MODEL)] * 2
    params = [{**GREEDY, **_PENALTIES[index % len(_PENALTIES)]} for index in range(len(prompts))]
    _judge_greedy(subject, judge, prompts, params)
    _after_preemptions(subject, judge)


def _after_preemptions(subject: Subject, judge: Judge) -> None:
    """Two grow into a second block, and only three are there; what was generated still counts."""
    _, size, reserved = dtype_and_blocks(subject)
    options = {"num_kv_blocks": 3 + reserved, "max_num_seqs": 2, **room_for(judge, size + 32)}
    prompts = [repeated(one.prompt, size - 3) for one in vectors_of(_MODEL)[:2]]
    params = [{**GREEDY, **_AGAIN, "max_tokens": 9}] * len(prompts)
    found = _judge_greedy(subject, judge, prompts, params, options)
    preemptions = found["stats"]["preemptions"] - found["before"]["preemptions"]
    judge.require(preemptions > 0, "three blocks for two, and none had to give way")


@check("engine.mixed_sampling")
def mixed_sampling(subject: Subject, judge: Judge) -> None:
    """Requests that each ask for something else share steps, and get what they get alone."""
    dtype = first_dtype(subject.facts)
    vectors = vectors_of(_MODEL)
    kinds = [*_CHANGES, {}, *_DRAWN]
    params = [{**GREEDY, "logprobs": None, **kind} for kind in kinds]
    prompts = [vectors[index % len(vectors)].prompt for index in range(len(kinds))]
    together, alone = (
        [one[0]["tokens"] for one in found["answers"]]
        for found in (
            ask(subject, _MODEL, dtype, prompts=prompts, params=params, one_by_one=one_by_one)
            for one_by_one in (False, True)
        )
    )
    for kind, mixed, own in zip(kinds, together, alone, strict=True):
        judge.require(
            mixed == own, f"with {kind} a request gets {mixed} in a mixed batch, {own} alone"
        )
    _judge_greedy(subject, judge, prompts[: len(_CHANGES)], params[: len(_CHANGES)])
    for kind, tokens in zip(kinds, together, strict=True):
        allowed = kind.get("allowed_token_ids")
        judge.require(
            allowed is None or set(tokens) <= set(allowed),
            f"of {allowed} alone a request may draw; it drew {tokens}",
        )


@check("engine.prompt_logprobs")
def prompt_logprobs(subject: Subject, judge: Judge) -> None:
    """Of prompts that are read whole, beside others, and in chunks."""
    dtype = first_dtype(subject.facts)
    vectors = vectors_of(_MODEL)
    prompts = [one.prompt for one in vectors]
    params = [{**GREEDY, "max_tokens": 3, "prompt_logprobs": 20}]
    chunks = {"max_num_batched_tokens": 8, "max_num_seqs": 4}
    for options, where in (({}, "whole prompts"), (chunks, "prompts in chunks")):
        found = ask(subject, _MODEL, dtype, prompts=prompts, params=params, options=options)
        for prompt, told, answer in zip(
            prompts, found["prompt_logprobs"], found["answers"], strict=True
        ):
            judge.require(
                len(told) == len(prompt) and told[0] is None,
                f"{where}: {len(told)} entries for a prompt of {len(prompt)} tokens",
            )
            entries = told[1:]
            judge.require(
                [one["token"] for one in entries] == prompt[1:],
                f"{where}: entries are for {[one['token'] for one in entries]}, not {prompt[1:]}",
            )
            judge_logits(judge, _MODEL, prompt, entries, dtype, first=0, where=where)
            _judge_own(judge, prompt, entries, dtype, where)
            same_logits(judge, _MODEL, prompt, answer[0], dtype, where)


def _judge_own(
    judge: Judge, prompt: Sequence[int], told: Sequence[Mapping[str, Any]], dtype: str, where: str
) -> None:
    """The number of the prompt's own token, which need not be among the likeliest."""
    exact = Decoder(MODELS[_MODEL]).log_probabilities(list(prompt))
    noise = legal_noise_of(_MODEL, prompt, dtype)
    for position, one in enumerate(told):
        right = float(exact[position, one["token"]])
        judge.at_most(
            f"{where}: error of a prompt's token over legal noise",
            abs(one["logprob"] - right) / noise,
            _MARGIN / 2,
        )


def _judge_greedy(
    subject: Subject,
    judge: Judge,
    prompts: Sequence[Sequence[int]],
    params: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    dtype = first_dtype(subject.facts)
    decoder, num_sure = Decoder(MODELS[_MODEL]), 0
    found = ask(subject, _MODEL, dtype, prompts=prompts, params=params, options=options or {})
    for prompt, fields, answer in zip(prompts, params, found["answers"], strict=True):
        given = answer[0]["tokens"]
        margin = _MARGIN * legal_noise_of(_MODEL, prompt, dtype)
        sure = sure_answer(decoder, prompt, Edits(fields), int(fields["max_tokens"]), margin)
        asked = {name: value for name, value in fields.items() if name not in GREEDY}
        judge.require(
            given[: len(sure)] == sure,
            f"with {asked} a prompt of {len(prompt)} tokens goes on {given}; expected {sure}",
        )
        num_sure += len(sure)
        same_logits(judge, _MODEL, prompt, answer[0], dtype, "with changed logits")
    judge.metric("tokens that are sure", num_sure)
    judge.require(num_sure >= _LEAST_SURE, f"only {num_sure} tokens are sure in {dtype}")
    return found
