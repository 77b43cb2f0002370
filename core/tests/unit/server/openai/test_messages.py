from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dougong.errors import RequestError
from dougong.server.openai.messages import Messages, plain_messages

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}


def plain(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return plain_messages(msgspec.convert(list(messages), Messages))


def test_calls_reach_a_template_with_their_arguments_as_objects() -> None:
    (turn,) = plain({"role": "assistant", "content": None, "tool_calls": [CALL]})
    (call,) = turn["tool_calls"]
    assert call == {**CALL, "function": {"name": "f", "arguments": {"a": [1]}}}
    assert turn["content"] == ""


def test_a_tools_answer_has_the_name_of_what_was_called() -> None:
    asked = {"role": "assistant", "tool_calls": [CALL]}
    answers: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "3", "name": "other"},
    ]
    assert plain(asked, *answers)[1:] == [
        {"role": "tool", "content": "1", "tool_call_id": "c1", "name": "f"},
        {"role": "tool", "content": "2", "tool_call_id": "c2"},
        {"role": "tool", "content": "3", "tool_call_id": "c1", "name": "other"},
    ]


def test_a_key_is_there_only_where_it_says_something() -> None:
    assert plain({"role": "assistant", "content": "x", "tool_calls": []}) == [
        {"role": "assistant", "content": "x"}
    ]
    assert plain({"role": "developer", "content": "x", "name": None}) == [
        {"role": "developer", "content": "x"}
    ]


def test_an_answer_may_be_sent_back_as_it_came() -> None:
    ours: dict[str, Any] = {"role": "assistant", "content": "x", "refusal": None, "annotations": [],
            "audio": None, "function_call": None, "tool_calls": None}  # fmt: skip
    assert plain(ours) == [{"role": "assistant", "content": "x"}]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("{", "no JSON text"),
        ("[1]", "no JSON object"),
        ("1", "no JSON object"),
        ('{"a": NaN}', "NaN"),
        ('{"a":' + "[" * 99999, "no JSON text"),
    ],
    ids=lambda text: text[:12],
)
def test_arguments_that_are_no_object_are_refused_by_their_place(arguments: str, says: str) -> None:
    call = {**CALL, "function": {"name": "f", "arguments": arguments}}
    with pytest.raises(RequestError, match=says) as caught:
        plain({"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [CALL, call]})
    assert caught.value.field == "messages.1.tool_calls.1.function.arguments"


def test_arguments_that_are_left_empty_are_an_empty_object() -> None:
    call = {**CALL, "function": {"name": "f", "arguments": ""}}
    (turn,) = plain({"role": "assistant", "tool_calls": [call]})
    assert turn["tool_calls"][0]["function"]["arguments"] == {}


def test_an_assistants_turn_that_says_nothing_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        plain({"role": "assistant", "tool_calls": []})
    assert caught.value.field == "messages.0.content"
