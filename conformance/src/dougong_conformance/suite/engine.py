"""The real engine on this platform: the answers that every right implementation gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.limits import law
from dougong_conformance.subject import Subject
from dougong_conformance.suite.worker import first_dtype, same_tokens
from dougong_conformance.zoo.adapters import ADAPTERS, added_weights
from dougong_conformance.zoo.decoder import NOTHING_ADDED, Decoder, legal_noise
from dougong_conformance.zoo.models import MODELS
from dougong_conformance.zoo.vectors import vectors_of

NUM_TOKENS = 10
_TOP = 20
GREEDY: dict[str, Any] = {
    "temperature": 0.0,
    "max_tokens": NUM_TOKENS,
    "ignore_eos": True,
    "logprobs": _TOP,
}


@check("engine.greedy_equality", per_dtype=True)
def greedy_equality(subject: Subject, judge: Judge, dtype: str) -> None:
    for model in MODELS:
        answers = ask(subject, model, dtype)["answers"]
        same_answers(judge, answers, model, dtype, dtype)


@check("engine.logits_obey_the_law", per_dtype=True)
def logits_obey_the_law(subject: Subject, judge: Judge, dtype: str) -> None:
    for model in MODELS:
        vector = max(vectors_of(model), key=lambda one: len(one.prompt))
        tokens = vector.prompt + vector.tokens
        prefixes = [tokens[:length] for length in range(1, len(tokens) + 1)]
        params = {**GREEDY, "max_tokens": 1}
        answers = ask(subject, model, dtype, prompts=prefixes, params=[params])["answers"]
        told = [answer[0]["logprobs"][0] for answer in answers]
        judge_logits(judge, model, tokens, told, dtype, first=0)


def judge_logits(
    judge: Judge,
    model: str,
    tokens: Sequence[int],
    told: Sequence[Mapping[str, Any]],
    dtype: str,
    *,
    first: int,
    where: str = "",
    adapter: str = "",
) -> None:
    """Hold what was told at consecutive positions of a sequence against the exact decoder.

    Args:
        judge: Of the case.
        model: Of the zoo.
        tokens: The sequence.
        told: Log-probabilities of the likeliest tokens, from position ``first`` on.
        dtype: In which they were computed.
        first: Position of the first one.
        where: For the message.
        adapter: Of the zoo, that is in use.
    """
    exact = _exact(model, tuple(tokens), adapter)
    noise = _noise(model, tuple(tokens), dtype, adapter)
    name, worst = f"{model} {where}".strip(), 0.0
    for position, one in enumerate(told, start=first):
        ids = [pair[0] for pair in one["top"]]
        judge.require(
            len(set(ids)) == _TOP, f"{name}: position {position} tells {len(set(ids))} tokens"
        )
        given = torch.tensor([pair[1] for pair in one["top"]], dtype=torch.float64)
        error = float((given - exact[position][ids]).abs().max())
        least = float(exact[position].topk(_TOP).values[-1])
        is_top = float(exact[position][ids].min()) >= least - 6 * noise
        judge.require(is_top, f"{name}: position {position} leaves likelier tokens out of its top")
        worst = max(worst, error if error == error else float("inf"))
    judge.at_most(f"{name}: error over legal noise", worst / noise, law().max_error)


@cache
def _exact(model: str, tokens: tuple[int, ...], adapter: str = "") -> torch.Tensor:
    decoder = Decoder(MODELS[model], added=_added(model, adapter))
    return decoder.log_probabilities(list(tokens))


@cache
def _noise(model: str, tokens: tuple[int, ...], dtype: str, adapter: str = "") -> float:
    added = _added(model, adapter)
    return legal_noise(MODELS[model], list(tokens), getattr(torch, dtype), added)


@cache
def _added(model: str, adapter: str) -> Mapping[str, torch.Tensor]:
    return added_weights(ADAPTERS[adapter], MODELS[model]) if adapter else NOTHING_ADDED


def legal_noise_of(model: str, tokens: Sequence[int], dtype: str) -> float:
    """Largest difference of a log-probability that legal roundings in a dtype make."""
    return _noise(model, tuple(tokens), dtype)


@cache
def sure_tokens(model: str, prompt: tuple[int, ...], count: int, dtype: str) -> list[int]:
    """The greedy answer, as far as no legal rounding can change it."""
    decoder, tokens = Decoder(MODELS[model]), list(prompt)
    least = 6 * _noise(model, prompt, dtype)
    while len(tokens) < len(prompt) + count:
        best = decoder.logits(tokens)[-1].topk(2)
        if float(best.values[0] - best.values[1]) < least:
            break
        tokens.append(int(best.indices[0]))
    return tokens[len(prompt) :]


@check("engine.reports_itself")
def reports_itself(subject: Subject, judge: Judge) -> None:
    dtype = first_dtype(subject.facts)
    told = subject.call("engine.report", model="grouped", dtype=dtype)
    facts = subject.facts
    judge.require(
        told["platform"] == facts.platform,
        f"the engine says that it runs on {told['platform']}, not {facts.platform}",
    )
    names = [device["name"] for device in facts.devices]
    judge.require(
        len(told["devices"]) == 1 and told["devices"][0] in names,
        f"the engine names {told['devices']} of {names}",
    )
    judge.require(told["dtype"] == dtype, f"the engine computes in {told['dtype']}, not {dtype}")
    for one in told["fallbacks"]:
        judge.require(one["level"] != "platform", f"the platform fell back: {one['reason']}")
        judge.warn(f"{one['level']} fallback of {one['subject']}: {one['reason']}")


@check("engine.unclaimed_dtype_is_refused")
def unclaimed_dtype_is_refused(subject: Subject, judge: Judge) -> None:
    unclaimed = next(
        (d for d in ("float64", "float16", "bfloat16") if d not in subject.facts.dtypes), None
    )
    if unclaimed is None:
        judge.warn("every dtype that could be asked for is claimed")
        return
    raised = subject.call("engine.refused", model="grouped", dtype=unclaimed, options={})
    judge.require(raised is not None, f"an engine starts in {unclaimed}, which is not claimed")
    judge.require(
        "ConfigError" in raised.kinds, f"{unclaimed} ends in {raised.kind}: {raised.message}"
    )


def ask(
    subject: Subject,
    model: str,
    dtype: str,
    *,
    prompts: Sequence[Sequence[int]] | None = None,
    params: Sequence[Mapping[str, Any]] = (GREEDY,),
    **more: Any,
) -> dict[str, Any]:
    """Ask an engine; the stored prompts of a model where none are given."""
    given = [one.prompt for one in vectors_of(model)] if prompts is None else prompts
    found: dict[str, Any] = subject.call(
        "engine.generate",
        model=model,
        dtype=dtype,
        prompts=[list(prompt) for prompt in given],
        params=[dict(one) for one in params],
        **more,
    )
    return found


def same_answers(
    judge: Judge,
    answers: Sequence[Sequence[Mapping[str, Any]]],
    model: str,
    dtype: str,
    where: str,
) -> None:
    """Require the stored answers to the stored prompts, one after the other, and their logits."""
    vectors = vectors_of(model)
    for index, answer in enumerate(answers):
        vector = vectors[index % len(vectors)]
        same_tokens(judge, answer[0]["tokens"], vector, where)
        judge.require(
            answer[0]["finish"] == "length",
            f"{where}: it ends with {answer[0]['finish']}; expected length",
        )
        same_logits(judge, model, vector.prompt, answer[0], dtype, where)


def same_logits(
    judge: Judge,
    model: str,
    prompt: Sequence[int],
    sequence: Mapping[str, Any],
    dtype: str,
    where: str,
    *,
    adapter: str = "",
) -> None:
    """Hold the log-probabilities of a whole answer against the exact decoder."""
    if not sequence["logprobs"]:
        return
    tokens = [*prompt, *sequence["tokens"]]
    judge_logits(
        judge,
        model,
        tokens,
        sequence["logprobs"],
        dtype,
        first=len(prompt) - 1,
        where=where,
        adapter=adapter,
    )
