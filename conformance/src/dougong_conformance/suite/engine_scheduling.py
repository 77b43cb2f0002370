"""Whatever else runs, whatever was cached, cut or taken back: the same answers."""

from __future__ import annotations

from typing import Any

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.subject import Subject
from dougong_conformance.suite.engine import (
    GREEDY,
    ask,
    same_answers,
    same_logits,
    sure_tokens,
)
from dougong_conformance.suite.worker import first_dtype
from dougong_conformance.zoo.vectors import vectors_of

NUM_BLOCKS = 64  # that engines of the suite are given where nothing else is said
_USUAL_LENGTH = 128  # of a sequence, likewise
_MOST_POSITIONS = 256  # that models of the zoo have
_CACHED: dict[str, Any] = {"enable_prefix_caching": True}


@check("engine.preemption_equality")
def preemption_equality(subject: Subject, judge: Judge) -> None:
    """Two grow into a second block, and only three are there: one has to give way, and is computed
    anew once the other has ended."""
    dtype, size, reserved = dtype_and_blocks(subject)
    room = room_for(judge, size + 32)
    for model in ("grouped", "window"):
        prompts = [one.prompt[: size - 3] for one in vectors_of(model)[:2]]
        if room:  # answers that fill a large block would take long to know
            prompts = [repeated(prompt, size - 3) for prompt in prompts]
        count = size - min(map(len, prompts)) + 6
        found = ask(
            subject,
            model,
            dtype,
            prompts=prompts,
            params=[{**GREEDY, "max_tokens": count}],
            options={"num_kv_blocks": 3 + reserved, "max_num_seqs": 2, **room},
        )
        preemptions = found["stats"]["preemptions"] - found["before"]["preemptions"]
        judge.require(preemptions > 0, f"{model}: three blocks for two, and none had to give way")
        for prompt, answer in zip(prompts, found["answers"], strict=True):
            sure = sure_tokens(model, tuple(prompt), count, dtype)
            given = answer[0]["tokens"]
            judge.metric(f"{model}: tokens that are sure", len(sure))
            judge.require(
                given[: len(sure)] == sure and len(given) == count,
                f"{model}: after {preemptions} preemptions {given}; expected {sure}",
            )
            same_logits(judge, model, prompt, answer[0], dtype, "after preemptions")


@check("engine.prefix_cache_equality")
def prefix_cache_equality(subject: Subject, judge: Judge) -> None:
    dtype, size, _ = dtype_and_blocks(subject)
    room = room_for(judge, size + 32)
    for model in ("grouped", "window"):
        long = [_extended(one.prompt, size) for one in vectors_of(model)]
        params = [{**GREEDY, "max_tokens": 3}]
        cold = ask(subject, model, dtype, prompts=long, params=params, options=room)
        options = {**_CACHED, **room}
        warm = ask(subject, model, dtype, prompts=long, params=params, options=options, repeats=2)
        judge.require(
            max(warm["cached"]) >= size,
            f"{model}: prompts of {len(long[0])} tokens come again; {warm['cached']} are cached",
        )
        for found, where in ((cold, "without a cache"), (warm, "with a warm cache")):
            for prompt, answer in zip(long, found["answers"], strict=True):
                same_logits(judge, model, prompt, answer[0], dtype, where)


@check("engine.chunked_equals_whole")
def chunked_equals_whole(subject: Subject, judge: Judge) -> None:
    dtype = first_dtype(subject.facts)
    for model in ("grouped", "window"):
        found = ask(subject, model, dtype, options={"max_num_batched_tokens": 8, "max_num_seqs": 4})
        same_answers(judge, found["answers"], model, dtype, "prompts cut into chunks")


@check("engine.concurrent_equals_sequential")
def concurrent_equals_sequential(subject: Subject, judge: Judge) -> None:
    dtype = first_dtype(subject.facts)
    for model in ("grouped", "odd"):
        prompts = [one.prompt for one in vectors_of(model)] * 3
        together = ask(subject, model, dtype, prompts=prompts)
        same_answers(judge, together["answers"], model, dtype, "nine at once")
        alone = ask(subject, model, dtype, one_by_one=True)
        same_answers(judge, alone["answers"], model, dtype, "one at a time")


@check("engine.mixed_batches")
def mixed_batches(subject: Subject, judge: Judge) -> None:
    """Requests that end at different times, so that decodes and prefills share steps."""
    dtype = first_dtype(subject.facts)
    vectors = vectors_of("grouped")
    lengths = (2, 10, 5, 1, 9, 3, 10, 4, 7, 10, 6, 8)
    params = [{**GREEDY, "max_tokens": length} for length in lengths]
    prompts = [vectors[index % len(vectors)].prompt for index in range(len(lengths))]
    found = ask(
        subject,
        "grouped",
        dtype,
        prompts=prompts,
        params=params,
        options={"max_num_seqs": 4, "max_num_batched_tokens": 24},
    )
    for index, answer in enumerate(found["answers"]):
        expected = vectors[index % len(vectors)].tokens[: lengths[index]]
        judge.require(
            answer[0]["tokens"] == expected,
            f"request {index} of a mixed batch goes on {answer[0]['tokens']}; expected {expected}",
        )
        prompt = vectors[index % len(vectors)].prompt
        same_logits(judge, "grouped", prompt, answer[0], dtype, "in mixed batches")


@check("engine.several_sequences")
def several_sequences(subject: Subject, judge: Judge) -> None:
    dtype = first_dtype(subject.facts)
    vectors = vectors_of("grouped")
    found = ask(subject, "grouped", dtype, params=[{**GREEDY, "n": 3}])
    for vector, answer in zip(vectors, found["answers"], strict=True):
        judge.require(len(answer) == 3, f"n=3 gives {len(answer)} sequences")
        for sequence in answer:
            judge.require(
                sequence["tokens"] == vector.tokens,
                f"n=3, greedy: {sequence['tokens']}; expected {vector.tokens}",
            )


@check("engine.seeds_repeat")
def seeds_repeat(subject: Subject, judge: Judge) -> None:
    dtype = first_dtype(subject.facts)
    hot = {"temperature": 1.5, "max_tokens": 10, "ignore_eos": True, "top_p": 0.9, "top_k": 40}
    prompts = [one.prompt for one in vectors_of("grouped")]
    answers = []
    for alone, seed in ((False, 7), (True, 7), (False, 8)):
        found = ask(
            subject, "grouped", dtype, prompts=prompts, params=[{**hot, "seed": seed}],
            one_by_one=alone,
        )  # fmt: skip
        answers.append([answer[0]["tokens"] for answer in found["answers"]])
    judge.require(
        answers[0] == answers[1], f"one seed, alone and together: {answers[0]} and {answers[1]}"
    )
    judge.require(answers[0] != answers[2], "two seeds draw the same tokens")


@check("engine.abort_frees")
def abort_frees(subject: Subject, judge: Judge) -> None:
    dtype = first_dtype(subject.facts)
    vectors = vectors_of("grouped")
    found = subject.call(
        "engine.abort",
        model="grouped",
        dtype=dtype,
        prompts=[one.prompt for one in vectors],
        times=20,
    )
    for what in ("running", "waiting", "held"):
        judge.require(
            found["after"][what] <= found["before"][what],
            f"after 20 aborts {found['after'][what]} are {what}; {found['before'][what]} before",
        )
    same_answers(judge, found["answers"], "grouped", dtype, "after 20 aborts")


@check("engine.bad_request_harms_nobody")
def bad_request_harms_nobody(subject: Subject, judge: Judge) -> None:
    vectors = vectors_of("grouped")
    dtype = first_dtype(subject.facts)
    found = subject.call(
        "engine.bad_request",
        model="grouped",
        dtype=dtype,
        prompts=[one.prompt for one in vectors],
        count=GREEDY["max_tokens"],
    )
    raised = found["raised"]
    judge.require(raised is not None, "a prompt of 4000 tokens is taken by a model of 128")
    judge.require("RequestError" in raised.kinds, f"it ends in {raised.kind}: {raised.message}")
    same_answers(judge, found["answers"], "grouped", dtype, "after a bad request")


def dtype_and_blocks(subject: Subject) -> tuple[str, int, int]:
    """A dtype, the tokens of a block, and the blocks that the backend keeps for itself."""
    dtype = first_dtype(subject.facts)
    report = subject.call("engine.report", model="grouped", dtype=dtype)
    return dtype, int(report["block_size"]), NUM_BLOCKS - int(report["num_kv_blocks"])


def _extended(prompt: list[int], size: int) -> list[int]:
    """A prompt that fills more than one block."""
    return repeated(prompt, max(size + 3, min(100, 2 * size + 3)))


def repeated(prompt: list[int], length: int) -> list[int]:
    """A prompt of that length: this one, time after time."""
    return (prompt * (length // len(prompt) + 1))[:length]


def room_for(judge: Judge, length: int) -> dict[str, int]:
    """Options with which a sequence may grow so long; none where the suite's own allow it."""
    if length > _MOST_POSITIONS:
        judge.not_run(f"blocks of this size need {length} positions; the zoo has {_MOST_POSITIONS}")
    return {} if length <= _USUAL_LENGTH else {"max_model_len": length}
