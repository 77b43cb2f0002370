"""Adapters in the real engine: each answer is that of a model with the adapter merged into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.subject import Subject
from dougong_conformance.suite.engine import GREEDY, same_logits
from dougong_conformance.suite.worker import first_dtype
from dougong_conformance.zoo.adapters import ADAPTERS
from dougong_conformance.zoo.vectors import vectors_of

_PLAIN = ""  # the model alone
_CHUNKS: dict[str, Any] = {"max_num_batched_tokens": 8, "max_num_seqs": 4}


@check("engine.lora_equals_merged")
def lora_equals_merged(subject: Subject, judge: Judge) -> None:
    """Several adapters and none share steps, with whole prompts and with prompts in chunks."""
    for model, options in (("grouped", {}), ("tied", {}), ("window", _CHUNKS), ("odd", {})):
        dtype = _dtype_with_adapters(subject, judge)
        names = ["whole", _PLAIN, "attention", "narrow", "whole", "attention"]
        prompts = [one.prompt for one in vectors_of(model)] * 2
        found = _acted(
            subject,
            judge,
            model,
            dtype,
            [*({"load": name} for name in ADAPTERS), _ask(zip(names, prompts, strict=True))],
            max_loras=len(ADAPTERS),
            options=options,
        )
        where = "in chunks" if options else "together"
        _judge_answers(judge, model, dtype, names, prompts, found[-1], where)


@check("engine.lora_prefix_cache")
def lora_prefix_cache(subject: Subject, judge: Judge) -> None:
    """One prompt by several adapters, again and again: what is cached is each one's own."""
    model, dtype = "grouped", _dtype_with_adapters(subject, judge)
    size = int(subject.call("engine.report", model=model, dtype=dtype)["block_size"])
    prompt = vectors_of(model)[0].prompt
    prompt = (prompt * (size // len(prompt) + 2))[: size + 3]
    if len(prompt) > 120:
        judge.not_run(f"blocks of {size} tokens are too long for the models of the zoo")
    names = ["whole", _PLAIN, "attention", "whole", _PLAIN, "attention"]
    acts = [{"load": "whole"}, {"load": "attention"}]
    acts += [_ask([(name, prompt)], max_tokens=3) for name in names]
    options = {"enable_prefix_caching": True}
    found = _acted(subject, judge, model, dtype, acts, max_loras=3, options=options)[2:]
    for name, one in zip(names, found, strict=True):
        _judge_answers(judge, model, dtype, [name], [prompt], one, "with a warm cache")
    cached = [one["cached"][0] for one in found]
    judge.require(
        min(cached[3:]) >= size,
        f"prompts of {len(prompt)} tokens come again with their adapters; {cached[3:]} are cached",
    )


@check("lora.unload")
def unload(subject: Subject, judge: Judge) -> None:
    """Afterwards the model answers as ever, and the adapter's name is refused."""
    model, dtype = "grouped", _dtype_with_adapters(subject, judge)
    prompts = [one.prompt for one in vectors_of(model)]
    plain = _ask([(_PLAIN, prompt) for prompt in prompts])
    whole = _ask([("whole", prompt) for prompt in prompts])
    acts = [{"load": "whole"}, whole, {"unload": "whole"}, plain, whole]
    found = _acted(subject, judge, model, dtype, acts, max_loras=2, may_raise=True)
    for step in found[:4]:
        _require_done(judge, step)
    count = len(prompts)
    _judge_answers(judge, model, dtype, ["whole"] * count, prompts, found[1], "before it is gone")
    _judge_answers(judge, model, dtype, [_PLAIN] * count, prompts, found[3], "after an unload")
    raised = found[4]["raised"]
    judge.require(raised is not None, "an adapter that was unloaded can still be asked for")
    judge.require(
        "RequestError" in raised.kinds,
        f"asking for an unloaded adapter ends in {raised.kind}: {raised.message}",
    )


@check("lora.slot_reuse")
def slot_reuse(subject: Subject, judge: Judge) -> None:
    """The next adapter of a slot, of a smaller rank and with fewer projections, is itself alone."""
    model, dtype = "grouped", _dtype_with_adapters(subject, judge)
    prompts = [one.prompt for one in vectors_of(model)]
    acts: list[dict[str, Any]] = []
    order = ("whole", "narrow", "attention", "narrow")
    for name in order:
        asked = _ask([(name, prompt) for prompt in prompts])
        acts += [{"load": name}, asked, {"unload": name}]
    found = _acted(subject, judge, model, dtype, acts, max_loras=1)
    for name, one in zip(order, found[1::3], strict=True):
        names = [name] * len(prompts)
        _judge_answers(judge, model, dtype, names, prompts, one, "in a slot that was used before")


def _dtype_with_adapters(subject: Subject, judge: Judge) -> str:
    """The dtype to ask in.

    Raises:
        NotClaimed: The platform names no wrapper, and refuses to start with adapters.
    """
    dtype = first_dtype(subject.facts)
    if subject.facts.has_lora:
        return dtype
    raised = subject.call(
        "engine.refused", model="grouped", dtype=dtype, options={"enable_lora": True}
    )
    judge.require(raised is not None, "the platform names no LoRA wrapper, and yet takes adapters")
    judge.require(
        "ConfigError" in raised.kinds and subject.facts.platform in raised.message,
        f"a start with adapters ends in {raised.kind}: {raised.message}",
    )
    judge.not_claimed("the platform names no LoRA wrapper, and a start with adapters says so")


def _ask(asked: Any, **changes: Any) -> dict[str, Any]:
    pairs = [[name, list(prompt)] for name, prompt in asked]
    return {"ask": pairs, "params": {**GREEDY, "max_tokens": 6, **changes}}


def _acted(
    subject: Subject,
    judge: Judge,
    model: str,
    dtype: str,
    acts: Sequence[Mapping[str, Any]],
    *,
    max_loras: int,
    options: Mapping[str, Any] | None = None,
    may_raise: bool = False,
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = subject.call(
        "engine.adapters",
        model=model,
        dtype=dtype,
        max_loras=max_loras,
        acts=[dict(one) for one in acts],
        options=dict(options or {}),
    )
    if not may_raise:
        for one in found:
            _require_done(judge, one)
    return found


def _require_done(judge: Judge, one: Mapping[str, Any]) -> None:
    raised = one["raised"]
    if raised is not None:
        judge.fail(f"with adapters the engine raised {raised.kind}: {raised.message}")


def _judge_answers(
    judge: Judge,
    model: str,
    dtype: str,
    names: Sequence[str],
    prompts: Sequence[Sequence[int]],
    found: Mapping[str, Any],
    where: str,
) -> None:
    for name, prompt, answer in zip(names, prompts, found["answers"], strict=True):
        told = f"{where}, {name or 'no'} adapter"
        judge.require(
            len(answer["tokens"]) == len(answer["logprobs"]) > 0,
            f"{told}: {len(answer['logprobs'])} log-probabilities for {answer['tokens']}",
        )
        same_logits(judge, model, prompt, answer, dtype, told, adapter=name)
