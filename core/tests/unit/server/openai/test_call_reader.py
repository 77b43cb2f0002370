from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from dougong.server.openai.call_reader import BareCalls, CallReader, TaggedCalls

Calls = list[tuple[str, str]]


def tagged() -> CallReader:
    return TaggedCalls("<tool_call>", "</tool_call>")


def bare() -> CallReader:
    return BareCalls(("f", "g"), marks=("<|python_tag|>",))


def listed() -> CallReader:
    return BareCalls(("f", "g"), separators="[,]")


def read(reader: CallReader, pieces: Sequence[str]) -> tuple[str, Calls]:
    """Words and calls, joined as a client joins them."""
    content = ""
    names: list[str] = []
    arguments: list[str] = []
    for news in [*map(reader.feed, pieces), reader.finish()]:
        content += news.content
        for one in news.calls:
            if one.name is not None:
                assert one.number == len(names)
                names.append(one.name)
                arguments.append("")
            arguments[one.number] += one.arguments
    return content, list(zip(names, arguments, strict=True))


CASES: dict[str, tuple[Callable[[], CallReader], str, str, Calls]] = {
    "words": (tagged, "hi there \n", "hi there \n", []),
    "one call": (
        tagged, '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', "",
        [("f", '{"a": 1}')]),
    "words and two calls": (
        tagged,
        'I look.\n<tool_call>{"name": "f", "arguments": {}}</tool_call>\n'
        '<tool_call>{"name":"g","arguments":{"b":[{}]}}</tool_call>\n',
        "I look.", [("f", "{}"), ("g", '{"b":[{}]}')]),
    "words after a call": (
        tagged, '<tool_call>{"name": "f", "arguments": {}}</tool_call> Done.', " Done.",
        [("f", "{}")]),
    "brackets, quotes and tags in a text": (
        tagged, '<tool_call>{"name": "f", "arguments": {"a": "}\\"</tool_call>{"}}</tool_call>', "",
        [("f", '{"a": "}\\"</tool_call>{"}')]),
    "keys in another order": (
        tagged, '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', "",
        [("f", '{"a": 1}')]),
    "arguments as a text": (
        tagged, '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "",
        [("f", '{"a": 1}')]),
    "no arguments": (tagged, '<tool_call>{"name": "f"}</tool_call>', "", [("f", "{}")]),
    "a bracket too few": (
        tagged, '<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call> x', " x",
        [("f", '{"a": 1}')]),
    "cut in the arguments": (
        tagged, 'a\n<tool_call>{"name": "f", "arguments": {"a": "b', "a", [("f", '{"a": "b')]),
    "cut before the name": (tagged, 'a <tool_call>{"na', 'a <tool_call>{"na', []),
    "cut in the tag": (tagged, "a <tool_c", "a <tool_c", []),
    "not a call": (
        tagged, '<tool_call>{"x": 1}</tool_call>!', '<tool_call>{"x": 1}</tool_call>!', []),
    "no object": (tagged, "<tool_call> no {", "<tool_call> no {", []),
    "nearly a tag": (tagged, "<tool_<<tool_call", "<tool_<<tool_call", []),
    "a name of no end": (
        tagged, f'<tool_call>{{"name": "{"n" * 600}", "arguments": {{"a": 1}}}}</tool_call>', "",
        [("n" * 600, '{"a": 1}')]),
    "bare": (bare, '{"name": "f", "parameters": {"a": 1}}', "", [("f", '{"a": 1}')]),
    "bare with a mark": (
        bare, '<|python_tag|>{"name": "f", "parameters": {}}\n', "", [("f", "{}")]),
    "two bare": (
        bare, '{"name": "f", "parameters": {}}; {"name": "g", "parameters": {"a": {}}}', "",
        [("f", "{}"), ("g", '{"a": {}}')]),
    "bare of an unknown name": (
        bare, ' {"name": "Bob", "parameters": {}} ', ' {"name": "Bob", "parameters": {}} ', []),
    "other JSON": (bare, '{"a": {"b": 1}}', '{"a": {"b": 1}}', []),
    "words that hold a call": (
        bare, 'Use {"name": "f", "parameters": {}}', 'Use {"name": "f", "parameters": {}}', []),
    "bare, then words": (bare, '{"name": "f", "parameters": {}} ok', " ok", [("f", "{}")]),
    "nearly a mark": (bare, "<|python", "<|python", []),
    "a list": (
        listed, '[ {"name": "f", "arguments": {"a": "]"}} ,{"name":"g","arguments":{}} ]', "",
        [("f", '{"a": "]"}'), ("g", "{}")]),
    "a list that was cut": (
        listed, '[{"name": "f", "arguments": {"a": [1', "", [("f", '{"a": [1')]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_words_and_calls_are_told_apart(
    case: tuple[Callable[[], CallReader], str, str, Calls],
) -> None:
    reader, text, content, calls = case
    assert read(reader(), [text]) == (content, calls)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_pieces_joined_are_the_whole_wherever_it_is_cut(
    case: tuple[Callable[[], CallReader], str, str, Calls],
) -> None:
    reader, text, content, calls = case
    assert read(reader(), list(text)) == (content, calls)
    for seed in range(10):
        draws, pieces, start = random.Random(seed), [], 0
        while start < len(text):
            end = start + draws.choice((1, 2, 3, 11))
            pieces.append(text[start:end])
            start = end
        assert read(reader(), pieces) == (content, calls), pieces


def test_a_call_is_told_as_it_comes() -> None:
    reader = tagged()
    reader.feed('<tool_call>{"name": "f", "arguments": ')
    news = [reader.feed(piece) for piece in ('{"a"', ': "x', 'y"}', "}</tool_call>")]
    assert [one.name for told in news for one in told.calls if one.name] == ["f"]
    assert ["".join(one.arguments for one in told.calls) for told in news] == [
        '{"a"', ': "x', 'y"}', "",
    ]  # fmt: skip


def test_words_are_held_only_where_they_may_be_a_tag() -> None:
    reader = tagged()
    assert reader.feed("a b").content == "a b"
    assert reader.feed(" <").content == ""
    assert reader.feed("b").content == " <b"
