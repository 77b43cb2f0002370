"""Text in a stream equals the text in one go: stop strings, split characters, cuts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dougong import LLM, AsyncEngine, RequestOutput, SamplingParams
from dougong.messages import CompletionOutput
from tests.support.null_engine import NULL_OPTIONS, NullModels

MARK = "\N{REPLACEMENT CHARACTER}"
WORDS = {  # answers whose tokens are longer than one byte need merges of the tokenizer
    "A": "one STOP two STAR three",
    "B": "the end of the other",
}
CASES: dict[str, tuple[str, dict[str, Any], str, str | None]] = {
    "across tokens": ("A", {"stop": ("STOP",)}, "one ", "STOP"),
    "inside one token": ("B", {"stop": ("he",)}, "t", "he"),
    "one a prefix of another": ("A", {"stop": ("STOP two", "STOP")}, "one ", "STOP"),
    "near-miss at first": ("A", {"stop": ("STAR",)}, "one STOP two ", "STAR"),
    "never": ("A", {"stop": ("threes",)}, "one STOP two STAR three", None),
    "included": ("A", {"stop": ("STOP",), "include_stop_str_in_output": True}, "one STOP", "STOP"),
    "at the last allowed token": ("A", {"stop": ("STOP",), "max_tokens": 8}, "one ", "STOP"),
    "cut before the match": ("A", {"stop": ("STOP",), "max_tokens": 7}, "one STO", None),
}


@pytest.fixture
def model(null_models: NullModels) -> str:
    merged = null_models.tokenizer.encode("the end of the other")
    return null_models.write({"A": WORDS["A"], "B": merged})


async def stream(model: str, prompt: str, params: SamplingParams) -> list[RequestOutput]:
    async with await AsyncEngine.start(model, in_own_process=False, **NULL_OPTIONS) as engine:
        return [output async for output in engine.generate(prompt, params)]


def one_go(model: str, prompt: str, params: SamplingParams) -> CompletionOutput:
    with LLM(model, **NULL_OPTIONS) as llm:
        return llm.generate(prompt, params)[0].outputs[0]


@pytest.mark.parametrize("case", CASES)
async def test_stop_strings(model: str, case: str) -> None:
    prompt, fields, text, stop = CASES[case]
    params = SamplingParams(**{"max_tokens": 60, "temperature": 0.0, **fields})
    outputs = await stream(model, prompt, params)
    last = outputs[-1].outputs[0]
    assert last == one_go(model, prompt, params)
    assert (last.text, last.stop_reason) == (text, stop)
    assert last.finish_reason == ("stop" if stop or case == "never" else "length")
    for output in outputs:
        assert last.text.startswith(output.outputs[0].text)
        if stop and not params.include_stop_str_in_output:
            assert stop not in output.outputs[0].text


async def test_nothing_is_held_back_without_need(model: str) -> None:
    params = SamplingParams(max_tokens=60, temperature=0.0, stop=("STOP it",))
    for output in await stream(model, "A", params):
        sequence = output.outputs[0]
        if not output.is_finished:
            held = WORDS["A"][len(sequence.text) : len(sequence.token_ids)]
            assert not held or params.stop[0].startswith(held)


ANSWERS: dict[str, tuple[str | bytes, str]] = {
    "emoji": ("👍🏽 ok", "👍🏽 ok"),
    "cjk": ("斗拱是标准的接头", "斗拱是标准的接头"),
    "combining": ("e\u0301a\u0300", "e\u0301a\u0300"),
    "invalid in the middle": (b"ab\xffcd", f"ab{MARK}cd"),
    "cut off and gone on": (b"a\xe4\xbdb", f"a{MARK}b"),
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_split_characters(null_models: NullModels, case: str) -> None:
    answer, text = ANSWERS[case]
    raw = answer.encode() if isinstance(answer, str) else answer
    model = null_models.write({"A": [null_models.byte_id(byte) for byte in raw]})
    params = SamplingParams(max_tokens=60, temperature=0.0)
    outputs = await stream(model, "A", params)
    assert outputs[-1].outputs[0].text == text == one_go(model, "A", params).text
    for output in outputs:
        shown = output.outputs[0].text
        assert text.startswith(shown)
        assert json.loads(json.dumps(shown.encode("utf-8").decode("utf-8"))) == shown


async def test_a_cut_inside_a_character_is_the_same_in_both_modes(null_models: NullModels) -> None:
    model = null_models.write({"A": "a好"})
    params = SamplingParams(max_tokens=3, temperature=0.0)
    outputs = await stream(model, "A", params)
    assert outputs[-1].outputs[0].text == one_go(model, "A", params).text == f"a{MARK}"
