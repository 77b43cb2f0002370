"""Scenarios A15 and A16 as clients meet them: what a stream tells, joined, is the whole answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.support.null_engine import NULL_OPTIONS, NullModels, install_null_platform
from tests.support.served_here import ServedHere, served_here
from tests.support.sse import DONE

STEP_S = 0.003  # so that a stream has several events
MARK = "\N{REPLACEMENT CHARACTER}"
WORDS = "one STOP two STAR three"
MERGED = "the end of the other"  # tokens of more than one byte
TURN = "👍🏽 STOP 斗拱"
ANSWERS: dict[str, str | bytes] = {
    "A": WORDS,
    "C": "👍🏽 ok",
    "D": "斗拱是标准的接头",
    "E": "e\u0301a\u0300",
    "F": b"ab\xffcd",
    "G": b"a\xe4\xbdb",
    "H": "a好",
    "<|im_start|>": TURN,
    "I": b"\xf0\x9f\x91" * 3 + b"z",
}
STOPS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "across tokens": ("A", {"stop": "STOP"}, "one ", "stop"),
    "inside one token": ("B", {"stop": ["he"]}, "t", "stop"),
    "one a prefix of another": ("A", {"stop": ["STOP two", "STOP"]}, "one ", "stop"),
    "near-miss at first": ("A", {"stop": ["STAR"]}, "one STOP two ", "stop"),
    "a near-miss at the end": ("A", {"stop": ["threes"]}, WORDS, "stop"),
    "included": ("A", {"stop": "STOP", "include_stop_str_in_output": True}, "one STOP", "stop"),
    "at the last allowed token": ("A", {"stop": "STOP", "max_tokens": 8}, "one ", "stop"),
    "cut before the match": ("A", {"stop": "STOP", "max_tokens": 7}, "one STO", "length"),
}
CHARACTERS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "emoji": ("C", {}, "👍🏽 ok", "stop"),
    "cjk": ("D", {}, "斗拱是标准的接头", "stop"),
    "combining": ("E", {}, "e\u0301a\u0300", "stop"),
    "invalid in the middle": ("F", {}, f"ab{MARK}cd", "stop"),
    "cut off and gone on": ("G", {}, f"a{MARK}b", "stop"),
    "cut by max_tokens": ("H", {"max_tokens": 3}, f"a{MARK}", "length"),
    "cut at the first byte": ("D", {"max_tokens": 1}, MARK, "length"),
    "three that never end": ("I", {}, f"{MARK * 3}z", "stop"),
}
CASES = {**STOPS, **CHARACTERS}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHere]:
    folder = tmp_path_factory.mktemp("streams")
    with pytest.MonkeyPatch.context() as patch:
        install_null_platform(folder / "site", patch)
        models = NullModels(folder / "models")
        scripts = {
            prompt: [models.byte_id(byte) for byte in _raw(answer)]
            for prompt, answer in ANSWERS.items()
        }
        scripts["B"] = models.tokenizer.encode(MERGED)
        model = models.write(scripts, step_seconds=STEP_S)
        with served_here(model, **NULL_OPTIONS) as server:
            yield server


@pytest.fixture(scope="module")
def client(server: ServedHere) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def _raw(answer: str | bytes) -> bytes:
    return answer.encode() if isinstance(answer, str) else answer


def fields(case: str) -> dict[str, Any]:
    prompt, more, _, _ = CASES[case]
    return {"prompt": prompt, "max_tokens": 60, "temperature": 0, **more}


def events(raw: bytes) -> list[Any]:
    """Every event by itself has to be UTF-8 and JSON."""
    parts = raw.split(b"\n\n")
    assert parts.pop() == b""
    contents = [part.decode("utf-8").removeprefix("data: ") for part in parts]
    assert contents.pop() == DONE
    return [json.loads(content) for content in contents]


@pytest.mark.parametrize("case", CASES)
def test_the_joined_stream_is_the_whole_answer(client: httpx.Client, case: str) -> None:
    _, _, text, reason = CASES[case]
    whole = client.post("/v1/completions", json=fields(case))
    stream = client.post("/v1/completions", json={**fields(case), "stream": True})
    (choice,) = whole.json()["choices"]
    assert (choice["text"], choice["finish_reason"]) == (text, reason)
    pieces = [event["choices"][0] for event in events(stream.content)]
    assert "".join(piece["text"] for piece in pieces) == text
    assert pieces[-1]["finish_reason"] == reason
    assert pieces[-1]["stop_reason"] == choice["stop_reason"]
    assert all(piece["finish_reason"] is None for piece in pieces[:-1])
    assert all(piece["text"] for piece in pieces[:-1]), "an event that tells nothing"


@pytest.mark.parametrize(
    ("more", "text", "reason"),
    [
        ({}, TURN, "stop"),
        ({"stop": ["STOP it", "STOP"]}, "👍🏽 ", "stop"),
        ({"stop": ["斗拱"], "include_stop_str_in_output": True}, "👍🏽 STOP 斗拱", "stop"),
        ({"max_tokens": 3}, MARK, "length"),
    ],
)
def test_a_conversation_streams_the_same_text(
    client: httpx.Client, more: dict[str, Any], text: str, reason: str
) -> None:
    turns = [{"role": "user", "content": "x"}]
    body = {"messages": turns, "max_tokens": 60, "temperature": 0, **more}
    whole = client.post("/v1/chat/completions", json=body).json()["choices"][0]
    stream = client.post("/v1/chat/completions", json={**body, "stream": True})
    deltas = [event["choices"][0] for event in events(stream.content)]
    assert (whole["message"]["content"], whole["finish_reason"]) == (text, reason)
    assert "".join(one["delta"].get("content", "") for one in deltas) == text
    assert deltas[-1]["finish_reason"] == reason


def test_no_more_text_is_held_back_than_a_stop_string_may_need(client: httpx.Client) -> None:
    """What is held back of the tokens an event brings could be the start of a match."""
    stop = "STOP it"
    body = {**fields("across tokens"), "stop": stop, "stream": True, "logprobs": 0}
    stream = client.post("/v1/completions", json=body)
    pieces = [event["choices"][0] for event in events(stream.content)]
    assert "".join(piece["text"] for piece in pieces) == WORDS
    assert len(pieces) > 2
    num_tokens = num_shown = 0  # one token is one character here
    for piece in pieces[:-1]:
        num_tokens += len(piece["logprobs"]["tokens"])
        num_shown += len(piece["text"])
        assert stop.startswith(WORDS[num_shown:num_tokens])
        assert not any(WORDS[:num_shown].endswith(stop[:n]) for n in range(1, len(stop)))


def test_many_streams_side_by_side_keep_their_texts_apart(server: ServedHere) -> None:
    async def joined(client: openai.AsyncOpenAI, case: str) -> str:
        prompt, more, _, _ = CASES[case]
        more = dict(more)
        extra = {key: more.pop(key) for key in ("include_stop_str_in_output",) if key in more}
        stream = await client.completions.create(
            **{"model": "tiny", "prompt": prompt, "max_tokens": 60, "temperature": 0, **more},
            stream=True,
            extra_body=extra,
        )
        return "".join([event.choices[0].text async for event in stream])

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            return await asyncio.gather(*(joined(client, case) for case in CASES))

    assert asyncio.run(all_of_them()) == [text for _, _, text, _ in CASES.values()]
