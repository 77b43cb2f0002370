from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dougong.messages import RequestOutput, SamplingParams
from tests.support.sse import DONE, events_of
from tests.unit.server.conftest import Served

URL = "/v1/completions"


async def stream(served: Served, **body: Any) -> list[Any]:
    answer = await served.post(URL, stream=True, **body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return events_of(answer.text)


async def test_an_answer_has_its_text_its_end_and_its_count(served: Served) -> None:
    answer = (await served.post(URL, model="tiny", prompt="AB")).json()
    assert answer["object"] == "text_completion"
    assert answer["model"] == "tiny"
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("answer", "stop")
    assert choice["logprobs"] is None
    assert answer["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 6,  # "an" is one token; the end counts
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


async def test_what_openai_takes_for_granted_holds(served: Served) -> None:
    await served.post(URL, prompt="A")
    assert served.engine.seen == [SamplingParams(max_tokens=16, temperature=1.0, n=1)]


async def test_a_stream_is_the_same_text_in_pieces(served: Served) -> None:
    *events, last = await stream(served, prompt="A")
    assert last == DONE
    assert len(events) > 3
    assert "".join(event["choices"][0]["text"] for event in events) == "answer"
    reasons = [event["choices"][0]["finish_reason"] for event in events]
    assert reasons == [None] * (len(events) - 1) + ["stop"]
    assert len({event["id"] for event in events}) == 1
    assert all("usage" not in event for event in events)


async def test_a_stream_counts_tokens_where_asked(served: Served) -> None:
    options = {"include_usage": True}
    *events, counted, _ = await stream(served, prompt="A", stream_options=options)
    assert all(event["usage"] is None for event in events)
    assert counted["choices"] == []
    whole = (await served.post(URL, prompt="A")).json()
    assert counted["usage"] == whole["usage"]


@pytest.mark.parametrize(
    "prompt", [["A", "BC"], [[1], [2, 3]]], ids=["several texts", "several lists of ids"]
)
async def test_several_prompts_have_n_answers_each_in_order(
    served: Served, prompt: list[Any]
) -> None:
    answer = (await served.post(URL, prompt=prompt, n=2)).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"]["prompt_tokens"] == 3
    assert answer["usage"]["completion_tokens"] == 24
    events = (await stream(served, prompt=prompt, n=2))[:-1]
    for index in range(4):
        pieces = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
        assert "".join(piece["text"] for piece in pieces) == "answer"
        assert pieces[-1]["finish_reason"] == "stop"


async def test_a_prompt_may_be_ids(served: Served) -> None:
    assert (await served.post(URL, prompt=[1, 2, 3])).json()["usage"]["prompt_tokens"] == 3


async def test_every_parameter_reaches_the_engine(served: Served) -> None:
    given: dict[str, Any] = {
        "n": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "seed": 3, "max_tokens": 9,
        "min_tokens": 2, "stop": ["x"], "stop_token_ids": [5], "ignore_eos": True,
        "include_stop_str_in_output": True, "skip_special_tokens": False, "logprobs": 2,
        "min_p": 0.1, "repetition_penalty": 1.5, "frequency_penalty": 0.5, "presence_penalty": -1,
        "logit_bias": {"7": 2.5, "200": -3}, "allowed_token_ids": [7, 8], "bad_words": ["bad"],
    }  # fmt: skip
    answer = await served.post(URL, prompt="A", **given)
    assert answer.status_code == 200, answer.text
    expected = SamplingParams(**{**given, "logit_bias": {7: 2.5, 200: -3}})
    assert served.engine.seen == [expected]
    untouched = SamplingParams()
    assert all(getattr(expected, name) != getattr(untouched, name) for name in given)


async def test_null_is_the_same_as_leaving_a_field_out(served: Served) -> None:
    fields = ("n", "temperature", "top_p", "seed", "max_tokens", "stop", "logprobs", "stream")
    answer = await served.post(URL, prompt="A", **dict.fromkeys(fields))
    assert answer.status_code == 200, answer.text
    assert served.engine.seen == [SamplingParams()]


async def test_a_stop_string_ends_the_text_and_is_told(served: Served) -> None:
    (choice,) = (await served.post(URL, prompt="A", stop="sw")).json()["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("an", "stop")
    assert choice["stop_reason"] == "sw"
    events = (await stream(served, prompt="A", stop="sw"))[:-1]
    assert "".join(event["choices"][0]["text"] for event in events) == "an"


async def test_log_probabilities_have_one_entry_per_token_and_are_plain_numbers(
    served: Served,
) -> None:
    (choice,) = (await served.post(URL, prompt="A", max_tokens=3, logprobs=2)).json()["choices"]
    found = choice["logprobs"]
    assert found["tokens"] == ["an", "s", "w"]
    assert found["text_offset"] == [0, 2, 3]
    assert found["token_logprobs"] == [-0.5] * 3
    assert [len(top) for top in found["top_logprobs"]] == [2] * 3
    assert -9999.0 in found["top_logprobs"][0].values()
    events = (await stream(served, prompt="A", max_tokens=3, logprobs=2))[:-1]
    parts = [event["choices"][0]["logprobs"] for event in events]
    assert [offset for part in parts for offset in part["text_offset"]] == [0, 2, 3]


@pytest.mark.parametrize("prompt", ["AB", [32, 33]], ids=["text", "ids"])
async def test_an_echo_is_the_prompt_and_then_the_answer(served: Served, prompt: Any) -> None:
    (choice,) = (await served.post(URL, prompt=prompt, echo=True)).json()["choices"]
    assert (choice["text"], choice["logprobs"]) == ("ABanswer", None)
    events = (await stream(served, prompt=prompt, echo=True))[:-1]
    texts = [event["choices"][0]["text"] for event in events]
    assert texts[0].startswith("AB")
    assert "".join(texts) == "ABanswer"


async def test_every_answer_to_every_prompt_has_its_own_prompt_before_it(served: Served) -> None:
    answer = await served.post(URL, prompt=["A", "BC"], n=2, echo=True)
    texts = [choice["text"] for choice in answer.json()["choices"]]
    assert texts == ["Aanswer", "Aanswer", "BCanswer", "BCanswer"]


async def test_an_echo_with_log_probabilities_has_those_of_the_prompt_first(
    served: Served,
) -> None:
    asked: dict[str, Any] = {"prompt": "ABC", "echo": True, "logprobs": 1, "max_tokens": 2}
    (choice,) = (await served.post(URL, **asked)).json()["choices"]
    found = choice["logprobs"]
    assert found["tokens"] == ["A", "B", "C", "an", "s"]
    assert found["token_logprobs"] == [None, -33.0, -34.0, -0.5, -0.5]
    assert found["text_offset"] == [0, 1, 2, 3, 5]
    assert [top and len(top) for top in found["top_logprobs"]] == [None, 1, 1, 1, 1]
    parts = [event["choices"][0]["logprobs"] for event in (await stream(served, **asked))[:-1]]
    assert {key: [one for part in parts for one in part[key]] for key in found} == found
    assert [params.prompt_logprobs for params in served.engine.seen] == [1, 1]


async def test_log_probabilities_of_the_prompt_are_told_by_token_id(served: Served) -> None:
    asked: dict[str, Any] = {"prompt": "ABC", "prompt_logprobs": 1, "max_tokens": 2, "n": 2}
    choices = (await served.post(URL, **asked)).json()["choices"]
    own = {"logprob": -33.0, "decoded_token": "B"}
    for choice in choices:
        first, second, third = choice["prompt_logprobs"]
        assert first is None
        assert second == {"33": own, "7": {"logprob": -0.25, "decoded_token": "("}}
        assert set(third) == {"34", "7"}
        assert choice["text"] == "ans"
    events = (await stream(served, **asked))[:-1]
    told = [event["choices"][0] for event in events if "prompt_logprobs" in event["choices"][0]]
    assert [one["index"] for one in told] == [0, 1]
    assert [one["prompt_logprobs"] for one in told] == [choices[0]["prompt_logprobs"]] * 2
    assert "prompt_logprobs" not in (await served.post(URL, prompt="A")).json()["choices"][0]


async def test_a_stream_waits_for_what_it_tells_of_the_prompt(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = served.engine.generate

    async def late(*args: Any, **kwargs: Any) -> AsyncIterator[RequestOutput]:
        """Another sequence of the prompt has its first token before the one that reports it."""
        is_first = True
        async for output in generate(*args, **kwargs):
            if is_first:
                output.prompt_logprobs = None
            is_first = False
            yield output

    monkeypatch.setattr(served.engine, "generate", late)
    events = (await stream(served, prompt="AB", echo=True, prompt_logprobs=0, logprobs=0))[:-1]
    first = events[0]["choices"][0]
    assert [entry and len(entry) for entry in first["prompt_logprobs"]] == [None, 1]
    assert first["logprobs"]["tokens"][:2] == ["A", "B"]
    assert "".join(event["choices"][0]["text"] for event in events) == "ABanswer"


async def test_an_echo_and_the_prompts_own_wish_are_each_as_many_as_asked(served: Served) -> None:
    answer = await served.post(URL, prompt="AB", echo=True, logprobs=1, prompt_logprobs=2)
    (choice,) = answer.json()["choices"]
    assert len(choice["prompt_logprobs"][1]) == 3
    assert len(choice["logprobs"]["top_logprobs"][1]) == 1
    assert served.engine.seen[0].prompt_logprobs == 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": ["a"] * 257}, "prompt"),
        ({"prompt": [288]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [10**30]}, "prompt"),
        ({"prompt": "a" * 5000}, "prompt"),
        ({"prompt": [5] * 64}, "prompt"),
        ({"prompt": "A", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "A", "max_tokens": -1}, "max_tokens"),
        ({"prompt": "A", "n": 0}, "n"),
        ({"prompt": "A", "n": 129}, "n"),
        ({"prompt": "A", "temperature": -1}, "temperature"),
        ({"prompt": "A", "temperature": 1e308}, "temperature"),
        ({"prompt": "A", "top_p": 0}, "top_p"),
        ({"prompt": "A", "top_k": -1}, "top_k"),
        ({"prompt": "A", "seed": -1}, "seed"),
        ({"prompt": "A", "logprobs": 21}, "logprobs"),
        ({"prompt": "A", "stop": ""}, "stop"),
        ({"prompt": "A", "stop": ["x"] * 17}, "stop"),
        ({"prompt": "A", "stop_token_ids": [288]}, "stop_token_ids"),
        ({"prompt": "A", "min_tokens": 17}, "min_tokens"),
        ({"prompt": "A", "stream_options": {}}, "stream_options"),
        ({"prompt": "A", "echo": 1}, "echo"),
        ({"prompt": "A", "prompt_logprobs": -1}, "prompt_logprobs"),
        ({"prompt": "A", "prompt_logprobs": 21}, "prompt_logprobs"),
        ({"prompt": "A", "echo": True, "logprobs": 21}, "logprobs"),
        ({"prompt": "A", "best_of": 2}, "best_of"),
        ({"prompt": "A", "suffix": "z"}, "suffix"),
        ({"prompt": "A", "frequency_penalty": 2.1}, "frequency_penalty"),
        ({"prompt": "A", "presence_penalty": False}, "presence_penalty"),
        ({"prompt": "A", "min_p": 2}, "min_p"),
        ({"prompt": "A", "bad_words": [""]}, "bad_words"),
        ({"prompt": "A", "allowed_token_ids": []}, "allowed_token_ids"),
        ({"prompt": "A", "allowed_token_ids": [288]}, "allowed_token_ids"),
        ({"prompt": "A", "logit_bias": {"288": 1}}, "logit_bias"),
        ({"prompt": "A", "logit_bias": {"5": 101}}, "logit_bias"),
        ({"prompt": "A", "logit_bias": {"05": 1}}, "logit_bias"),
        ({"prompt": "A", "logit_bias": {"²": 1}}, "logit_bias"),
        ({"prompt": "A", "logit_bias": {"-1": 1}}, "logit_bias"),
        ({"prompt": "A", "logit_bias": {"x" * 9999: 1}}, "logit_bias"),
        ({"prompt": "A", "logit_bias": [1]}, "logit_bias"),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_stream", [False, True])
async def test_what_cannot_be_done_is_refused_by_the_fields_name_and_ends_no_other(
    served: Served, body: dict[str, Any], field: str, is_stream: bool
) -> None:
    served.engine.gate.clear()
    neighbour = asyncio.create_task(served.post(URL, prompt="A"))
    while not served.engine.num_begun:
        await asyncio.sleep(0)
    if is_stream and "stream_options" in body:
        body = {**body, "stream_options": {"include_usage": 1}}
        field = "stream_options.include_usage"
    answer = await served.post(URL, stream=is_stream, **body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == field
    served.engine.gate.set()
    assert (await neighbour).json()["choices"][0]["text"] == "answer"


async def test_values_that_change_nothing_are_welcome(served: Served) -> None:
    answer = await served.post(
        URL, prompt="A", echo=False, best_of=1, suffix="", frequency_penalty=0,
        presence_penalty=0.0, logit_bias={}, response_format={"type": "text"}, user="me",
        metadata={"a": "b"},
    )  # fmt: skip
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_engine_that_dies_before_the_first_token_is_a_503(
    served: Served, is_stream: bool
) -> None:
    served.engine.num_steps_before_death = 0
    answer = await served.post(URL, prompt="A", stream=is_stream)
    assert answer.status_code == 503


async def test_a_stream_whose_engine_died_ends_with_an_error_and_without_done(
    served: Served,
) -> None:
    served.engine.num_steps_before_death = 3
    events = await stream(served, prompt="A", stream_options={"include_usage": True})
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == "answ"[:4]
    assert events[-1]["error"]["code"] == "engine_dead"
    assert DONE not in events
    assert (await served.client.get("/health")).status_code == 503


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("prompt", ["A", ["A", "B"]], ids=["one prompt", "two prompts"])
async def test_a_client_that_leaves_ends_its_requests(
    served: Served, is_stream: bool, prompt: str | list[str]
) -> None:
    served.engine.gate.clear()
    asking = asyncio.create_task(served.post(URL, prompt=prompt, stream=is_stream))
    count = len(prompt)
    while served.engine.num_begun < count:
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert served.engine.num_left == count
    assert served.serving.admission.num_live == 0
    served.engine.gate.set()
    assert (await served.post(URL, prompt="A")).status_code == 200
    assert served.engine.num_left == count  # one that finished is not ended again
