"""Tools through the chat route: what the template hears, and what of an answer is a call."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dougong.engine.tokenizer import Tokenizer
from tests.support.fake_engine import FakeEngine, tiny_tokenizer
from tests.support.sse import events_of
from tests.unit.server.conftest import Served

URL = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hi"}]
TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}"
    "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    "{% if tools %}{% for t in tools %}{{ t.function.name }}{% endfor %}{% endif %}"
    "{% if false %}<tool_call>{% endif %}"
)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
NAMED = {"type": "function", "function": {"name": "weather"}}
ROME = '{"city": "Rome"}'
ONE = f'<tool_call>\n{{"name": "weather", "arguments": {ROME}}}\n</tool_call>'
TWO = f'I look.\n{ONE}\n<tool_call>\n{{"name": "clock", "arguments": {{}}}}\n</tool_call>'


@pytest.fixture(scope="module")
def with_tools(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tiny_tokenizer(tmp_path_factory.mktemp("tools"), template=TEMPLATE)


@pytest.fixture
def answering(serve: Callable[..., Served], with_tools: Tokenizer) -> Callable[..., Served]:
    """A server whose model writes this."""
    return lambda answer="answer", **changes: serve(FakeEngine(with_tools, answer), **changes)


async def joined(served: Served, **body: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    """Choices of a stream, joined as a client joins them, and every choice of its events."""
    answer = await served.post(URL, stream=True, **body)
    assert answer.status_code == 200, answer.text
    events = [event["choices"][0] for event in events_of(answer.text)[:-1]]
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        one = choices.setdefault(event["index"], {"content": "", "calls": [], "reason": None})
        assert one["reason"] is None
        one["content"] += event["delta"].get("content") or ""
        one["reason"] = event["finish_reason"]
        for delta in event["delta"].get("tool_calls", ()):
            if delta["index"] == len(one["calls"]):
                assert delta["id"].startswith("call_") and delta["type"] == "function"
                one["calls"].append((delta["function"]["name"], ""))
            name, arguments = one["calls"][delta["index"]]
            one["calls"][delta["index"]] = (name, arguments + delta["function"]["arguments"])
    return [choices[index] for index in sorted(choices)], events


async def whole(served: Served, **body: Any) -> list[dict[str, Any]]:
    answer = await served.post(URL, **body)
    assert answer.status_code == 200, answer.text
    found = []
    for choice in answer.json()["choices"]:
        calls = choice["message"].get("tool_calls", [])
        assert len({call["id"] for call in calls}) == len(calls)
        named = [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
        content = choice["message"]["content"]
        assert content is not None or calls
        found.append({"content": content or "", "calls": named, "reason": choice["finish_reason"]})
    return found


@pytest.mark.parametrize(
    ("answer", "more", "expected"),
    [
        ("just words", {}, {"content": "just words", "calls": [], "reason": "stop"}),
        (ONE, {}, {"content": "", "calls": [("weather", ROME)], "reason": "tool_calls"}),
        (TWO, {}, {"content": "I look.", "calls": [("weather", ROME), ("clock", "{}")],
                   "reason": "tool_calls"}),
        (TWO, {"parallel_tool_calls": False},
         {"content": "I look.", "calls": [("weather", ROME)], "reason": "tool_calls"}),
        (ONE, {"max_tokens": 58}, {"content": "", "calls": [("weather", '{"city": "R')],
                                   "reason": "length"}),
        (ONE, {"tool_choice": "none"}, {"content": ONE, "calls": [], "reason": "stop"}),
        (ROME, {"tool_choice": NAMED},
         {"content": "", "calls": [("weather", ROME)], "reason": "tool_calls"}),
        (f'[{{"name": "clock", "arguments": {{}}}}, {{"name": "weather", "arguments": {ROME}}}]',
         {"tool_choice": "required"},
         {"content": "", "calls": [("clock", "{}"), ("weather", ROME)], "reason": "tool_calls"}),
    ],
    ids=["words", "one", "two", "one of two", "cut", "none", "named", "required"],
)  # fmt: skip
async def test_calls_are_told_apart_whole_and_streamed(
    answering: Callable[..., Served], answer: str, more: dict[str, Any], expected: dict[str, Any]
) -> None:
    served = answering(answer)
    body = {"messages": HELLO, "tools": [WEATHER, CLOCK], "n": 2, **more}
    expected_cut = expected["reason"] == "length"
    found = await whole(served, **body)
    if expected_cut:  # how many letters a token has is the tokenizer's business
        assert found[0]["calls"][0][0] == "weather"
        assert ROME.startswith(found[0]["calls"][0][1])
        assert found[0]["reason"] == "length"
        expected = found[0]
    assert found == [expected] * 2
    choices, events = await joined(served, **body)
    assert choices == [expected] * 2
    roles = [event["index"] for event in events if "role" in event["delta"]]
    assert sorted(roles) == [0, 1]


async def test_a_call_is_streamed_as_it_is_written(answering: Callable[..., Served]) -> None:
    _, events = await joined(answering(ONE), messages=HELLO, tools=[WEATHER])
    arguments = [
        delta["function"]["arguments"]
        for event in events
        for delta in event["delta"].get("tool_calls", ())
    ]
    assert len(arguments) > 5
    assert "".join(arguments) == ROME


async def test_log_probabilities_are_all_told_though_their_text_is_no_words(
    answering: Callable[..., Served],
) -> None:
    served = answering(ONE)
    body: dict[str, Any] = {"messages": HELLO, "tools": [WEATHER], "logprobs": True}
    _, events = await joined(served, **body)
    streamed = [one for event in events for one in (event["logprobs"] or {}).get("content", ())]
    answer = (await served.post(URL, **body)).json()
    assert streamed == answer["choices"][0]["logprobs"]["content"]
    assert len(streamed) == answer["usage"]["completion_tokens"]


async def test_the_template_hears_of_tools_calls_and_answers(
    answering: Callable[..., Served], with_tools: Tokenizer
) -> None:
    served = answering()
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": ROME}}
    messages = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "sun"},
    ]
    answer = (await served.post(URL, messages=messages, tools=[CLOCK])).json()
    expected = with_tools.encode(f"hiweather{ROME}sunclock", add_special_tokens=False)
    assert answer["usage"]["prompt_tokens"] == len(expected)
    tokens = (await served.post("/tokenize", messages=messages, tools=[CLOCK])).json()["tokens"]
    assert tokens == expected
    silent = await served.post(URL, messages=HELLO, tools=[CLOCK], tool_choice="none")
    assert silent.json()["usage"]["prompt_tokens"] == 2


@pytest.mark.parametrize(
    ("choice", "schema"), [(NAMED, SCHEMA), ("required", None)], ids=["named", "required"]
)
async def test_a_call_that_must_be_made_is_held_to_by_a_grammar(
    answering: Callable[..., Served], choice: Any, schema: Any
) -> None:
    served = answering()
    await served.post(URL, messages=HELLO, tools=[WEATHER], tool_choice=choice)
    await served.post(URL, messages=HELLO, tools=[WEATHER])
    held, free = [params.structured_output for params in served.engine.seen]
    assert held is not None and held.json_schema is not None
    assert schema is None or json.loads(held.json_schema) == schema
    assert free is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tools": [{"type": "function"}]}, "tools.0.function"),
        ({"tools": [{"function": {"name": "f"}}]}, "tools.0.type"),
        ({"tools": [{"type": "x", "function": {"name": "f"}}]}, "tools.0.type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name"),
        ({"tools": [CLOCK, CLOCK]}, "tools.1.function.name"),
        ({"tools": [CLOCK] * 129}, "tools"),
        ({"tools": [CLOCK], "tool_choice": "maybe"}, "tool_choice"),
        ({"tools": [CLOCK], "tool_choice": NAMED}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [CLOCK], "response_format": {"type": "json_object"}}, "tools"),
        ({"tools": [CLOCK], "structured_outputs": {"regex": "a"}}, "tools"),
        ({"tools": [CLOCK], "tool_choice": "required", "ignore_eos": True}, "ignore_eos"),
        ({"tools": [CLOCK], "chat_template_kwargs": {"tools": []}}, "chat_template_kwargs"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
         "tools.0.function.parameters"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
async def test_what_cannot_be_done_with_tools_is_refused_by_the_fields_name(
    answering: Callable[..., Served], body: dict[str, Any], field: str
) -> None:
    served = answering()
    answer = await served.post(URL, messages=HELLO, **body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == field
    assert not served.engine.seen


async def test_a_model_whose_template_takes_no_tools_is_not_given_any(served: Served) -> None:
    for choice in (None, "required", NAMED):
        answer = await served.post(URL, messages=HELLO, tools=[WEATHER], tool_choice=choice)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "tools"
        assert "takes no tools" in answer.json()["error"]["message"]
    assert (await served.post("/tokenize", messages=HELLO, tools=[WEATHER])).status_code == 400
    silent = await served.post(URL, messages=HELLO, tools=[WEATHER], tool_choice="none")
    assert silent.status_code == 200


async def test_the_operators_form_comes_before_the_templates(
    answering: Callable[..., Served],
) -> None:
    bare = f'{{"name": "weather", "parameters": {ROME}}}'
    served = answering(bare, tool_call_parser="llama3_json")
    (found,) = await whole(served, messages=HELLO, tools=[WEATHER])
    assert found["calls"] == [("weather", ROME)]
