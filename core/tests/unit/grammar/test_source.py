"""What the library is told: the client's wish, and bounds of our own."""

from __future__ import annotations

import re

import pytest

from dougong.grammar.compiler import GrammarCompiler
from dougong.messages import StructuredOutput
from tests.unit.grammar.tiny import ids, vocabulary

SCHEMA = """{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array",
    "items": {"type": "boolean"}}}, "required": ["a", "b"], "additionalProperties": false}"""


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(vocabulary)


def is_whole(compiler: GrammarCompiler, wish: StructuredOutput, text: str) -> bool:
    """Whether a text is one that the wish allows, from the first byte to the last."""
    follower = compiler.compile(wish).result().copy()
    error = follower.advance(ids(text))
    return error is None and follower.matcher.is_accepting()


@pytest.mark.parametrize(
    "pattern", [r"\d{2}", "a/b", "a|b\n", r"[^/\n]", r"(?i)yes", "é+", r"\\|/"]
)
@pytest.mark.parametrize("text", ["12", "a/b", "a", "b\n", "/", "x", "YES", "éé", "\\", "", "aa/b"])
def test_a_regex_means_the_whole_text_as_in_python(
    compiler: GrammarCompiler, pattern: str, text: str
) -> None:
    wish = StructuredOutput(regex=pattern)
    assert is_whole(compiler, wish, text) is (re.fullmatch(pattern, text) is not None)


def test_a_digit_is_one_of_ten(compiler: GrammarCompiler) -> None:
    wish = StructuredOutput(regex=r"\d")
    assert is_whole(compiler, wish, "7")
    assert not is_whole(compiler, wish, "\N{ARABIC-INDIC DIGIT SEVEN}")


def test_a_choice_is_the_text_itself(compiler: GrammarCompiler) -> None:
    texts = ['"', "\\", "\n", "a.c", "\N{GRINNING FACE}", "\x01", "\u2028"]
    wish = StructuredOutput(choice=texts)
    assert all(is_whole(compiler, wish, text) for text in texts)
    assert not any(is_whole(compiler, wish, text) for text in ("abc", "", '"\\'))


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        ('{"a":1,"b":[true,false]}', True),
        ('{"a": 1, "b": [true, false]}', True),
        ('{\n  "a": 1,\r\n\t"b": []\n}', True),
        ('{"a":  1,"b":[]}', False),
        ('{\n\n"a":1,"b":[]}', False),
        ('{\n' + " " * 33 + '"a":1,"b":[]}', False),
        (' {"a":1,"b":[]}', False),
        ('{"a":1,"b":[]}\n', False),
    ],
)  # fmt: skip
def test_json_may_be_laid_out_but_spaces_have_an_end(
    compiler: GrammarCompiler, text: str, is_taken: bool
) -> None:
    assert is_whole(compiler, StructuredOutput(json_schema=SCHEMA), text) is is_taken


@pytest.mark.parametrize(
    ("text", "is_taken"), [('{"x":[1,null]}', True), ("[1]", False), ("1", False)]
)
def test_an_object_is_any_object(compiler: GrammarCompiler, text: str, is_taken: bool) -> None:
    assert is_whole(compiler, StructuredOutput(json_object=True), text) is is_taken


def test_a_schema_cannot_take_the_bounds_away(compiler: GrammarCompiler) -> None:
    loose = '{"x-guidance":{"whitespace_pattern":" *"},"type":"array"}'
    assert not is_whole(compiler, StructuredOutput(json_schema=loose), "[   ]")
