from __future__ import annotations

import pytest

from dougong.server.openai.call_object import CallObject


def test_a_name_is_told_before_its_arguments_and_once() -> None:
    found = CallObject()
    assert found.feed('{"name": "f", "parameters": ') == []
    (name, *rest) = found.feed("{")
    assert (name.name, name.arguments) == ("f", "")
    assert [part.arguments for part in rest] == ["{"]
    assert found.feed('"a": 1}}')[0].arguments == '"a": 1}'
    assert found.is_over and found.has_bracket_to_come
    assert found.rest == "}"


def test_escapes_of_a_name_are_read() -> None:
    found = CallObject(("a\u00e9",))
    assert found.feed('{"name": "a\\u00e9", "arguments": {}}')[0].name == "a\u00e9"


@pytest.mark.parametrize(
    "text",
    [
        "x",
        '{"name": "g", "arguments": {}}',
        '{"name": 1, "arguments": {}}',
        '{"name": "", "arguments": {}}',
        '{"arguments": {}, "name": "g"}',
        '{"name": "f", "arguments": 1}',
        '{"name": "f", "arguments": "[1]"}',
        '{"name": "f", "arguments": "{"}',
        "{nonsense}",
        "}",
        '{"a": ' + "[" * 5000 + "]" * 5000 + "}",
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_call_is_said_to_be_none_and_nothing_of_it_is_told(text: str) -> None:
    found = CallObject(("f",))
    assert found.feed(text) == []
    assert found.is_odd
    assert found.text == text
