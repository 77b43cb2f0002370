from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dougong.engine.tokenizer import Tokenizer
from dougong.messages import SamplingParams
from tests.support.fake_engine import FakeEngine, tiny_tokenizer
from tests.support.sse import DONE, events_of
from tests.unit.server.conftest import Served

URL = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hi"}]


async def test_an_answer_has_its_message_its_end_and_its_count(served: Served) -> None:
    answer = (await served.post(URL, model="tiny", messages=HELLO)).json()
    assert answer["object"] == "chat.completion"
    (choice,) = answer["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == "answer"
    assert choice["finish_reason"] == "stop"
    num_prompt = len(served.engine.tokenizer.encode_chat(HELLO))
    assert answer["usage"]["prompt_tokens"] == num_prompt
    assert answer["usage"]["total_tokens"] == num_prompt + 6


async def test_an_answer_may_be_as_long_as_the_model_unless_told(served: Served) -> None:
    await served.post(URL, messages=HELLO)
    await served.post(URL, messages=HELLO, max_tokens=3)
    await served.post(URL, messages=HELLO, max_completion_tokens=4)
    await served.post(URL, messages=HELLO, max_completion_tokens=4, max_tokens=4)
    assert [params.max_tokens for params in served.engine.seen] == [None, 3, 4, 4]


async def test_a_stream_names_the_role_once_for_each_choice_and_is_the_same_text(
    served: Served,
) -> None:
    answer = await served.post(
        URL, messages=HELLO, n=2, stream=True, stream_options={"include_usage": True}
    )
    *events, counted, last = events_of(answer.text)
    assert last == DONE
    assert counted["choices"] == []
    assert counted["usage"]["completion_tokens"] == 12
    for index in (0, 1):
        choices = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
        deltas = [choice["delta"] for choice in choices]
        assert "".join(delta.get("content", "") for delta in deltas) == "answer"
        assert ["role" in delta for delta in deltas] == [True] + [False] * (len(deltas) - 1)
        assert choices[-1]["finish_reason"] == "stop"
    assert {event["object"] for event in events} == {"chat.completion.chunk"}


async def test_parts_of_text_are_one_text(served: Served) -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    split = await served.post(URL, messages=[{"role": "user", "content": parts}])
    whole = await served.post(URL, messages=HELLO)
    assert split.json()["usage"] == whole.json()["usage"]


async def test_log_probabilities_spell_their_bytes(served: Served) -> None:
    body: dict[str, Any] = {"messages": HELLO, "logprobs": True, "max_tokens": 2}
    (choice,) = (await served.post(URL, top_logprobs=2, **body)).json()["choices"]
    first, second = choice["logprobs"]["content"]
    assert (first["token"], first["bytes"], first["logprob"]) == ("an", [97, 110], -0.5)
    assert second["token"] == "s"
    assert [top["logprob"] for top in first["top_logprobs"]] == [-0.5, -9999.0]
    (choice,) = (await served.post(URL, **body)).json()["choices"]
    assert choice["logprobs"]["content"][0]["top_logprobs"] == []
    assert [params.logprobs for params in served.engine.seen] == [2, 0]


async def test_every_parameter_reaches_the_engine(served: Served) -> None:
    given: dict[str, Any] = {"n": 2, "temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": ["x"]}
    await served.post(URL, messages=HELLO, **given)
    assert served.engine.seen == [SamplingParams(**given, max_tokens=None)]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "root", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages.0.content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.tool_call_id"),
        ({"messages": [{"role": "assistant"}]}, "messages.0.content"),
        ({"messages": [*HELLO, {"role": "user", "content": "x", "tool_calls": []}]},
         "messages.1.tool_calls"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
         "messages.0.content.0.type"),
        ({"messages": [{"role": "user", "content": "a" * 5000}]}, "messages"),
        ({"messages": HELLO, "prompt_logprobs": 21}, "prompt_logprobs"),
        ({"messages": HELLO, "tool_choice": "required"}, "tool_choice"),
        ({"messages": HELLO, "functions": [{"name": "f"}]}, "functions"),
        ({"messages": HELLO, "audio": {}}, "audio"),
        ({"messages": HELLO, "store": True}, "store"),
        ({"messages": HELLO, "top_logprobs": 2}, "top_logprobs"),
        ({"messages": HELLO, "logprobs": True, "top_logprobs": 21}, "logprobs"),
        ({"messages": HELLO, "max_tokens": 1, "max_completion_tokens": 2},
         "max_completion_tokens"),
        ({"messages": HELLO, "max_completion_tokens": 0}, "max_completion_tokens"),
        ({"messages": HELLO, "chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"messages": HELLO, "prompt": "x"}, "prompt"),
    ],
    ids=str,
)  # fmt: skip
async def test_what_cannot_be_done_is_refused_by_the_fields_name(
    served: Served, body: dict[str, Any], field: str
) -> None:
    answer = await served.post(URL, **body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == field
    assert not served.engine.seen


async def test_values_that_change_nothing_are_welcome(served: Served) -> None:
    answer = await served.post(
        URL, messages=HELLO, tools=[], tool_choice="auto", parallel_tool_calls=True, store=False,
        service_tier="auto", modalities=["text"], response_format={"type": "text"}, audio=None,
    )  # fmt: skip
    assert answer.status_code == 200, answer.text


async def test_without_a_template_chat_is_refused_with_the_option_that_supplies_one(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    bare = serve(FakeEngine(tiny_tokenizer(tmp_path, has_template=False)))
    answer = await bare.post(URL, messages=HELLO)
    assert answer.status_code == 400
    assert "--chat-template" in answer.json()["error"]["message"]
    assert (await bare.post("/v1/completions", prompt="A")).status_code == 200


async def test_a_template_that_refuses_an_order_is_a_400_with_its_words(
    serve: Callable[..., Served], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    strict = tiny_tokenizer(
        tmp_path, template="{{ raise_exception('roles must alternate') }}{{ mood }}"
    )
    answer = await serve(FakeEngine(strict)).post(URL, messages=HELLO)
    assert answer.status_code == 400
    assert "roles must alternate" in answer.json()["error"]["message"]


async def test_variables_of_the_template_reach_it(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    moody = tiny_tokenizer(tmp_path, template="{{ mood }}")
    served = serve(FakeEngine(moody))
    answer = await served.post(URL, messages=HELLO, chat_template_kwargs={"mood": "xyz"})
    assert answer.json()["usage"]["prompt_tokens"] == 3
