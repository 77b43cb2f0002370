"""Compiling beside the steps: once each, with a cause where it fails."""

from __future__ import annotations

import threading

import pytest

from dougong.errors import RequestError
from dougong.grammar import GrammarCompiler, GrammarVocabulary
from dougong.messages import StructuredOutput
from tests.unit.grammar.tiny import vocabulary


def test_one_wish_is_compiled_once_and_the_vocabulary_is_made_once() -> None:
    made = []

    def make() -> GrammarVocabulary:
        made.append(threading.current_thread().name)
        return vocabulary()

    compiler = GrammarCompiler(make)
    wishes = [StructuredOutput(regex="a+"), StructuredOutput(choice=["a"])]
    first = [compiler.compile(wish) for wish in wishes]
    for future in first:
        future.result(10)
    assert compiler.compile(StructuredOutput(regex="a+")) is first[0]
    assert len(made) == 1
    assert made[0].startswith("dougong-grammar")
    assert compiler.num_compiled == 2
    assert compiler.seconds > 0
    compiler.close()
    compiler.close()


def test_the_wish_that_was_asked_for_longest_ago_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dougong.grammar.compiler._NUM_KEPT", 2)
    compiler = GrammarCompiler(vocabulary)
    old, new, newest = (StructuredOutput(regex=one) for one in "abc")
    kept, lost = compiler.compile(old), compiler.compile(new)
    assert compiler.compile(old) is kept
    compiler.compile(newest)
    assert compiler.compile(old) is kept
    assert compiler.compile(new) is not lost
    compiler.close()


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (StructuredOutput(regex="("), "unclosed group"),
        (StructuredOutput(regex=r"[^\s\S]"), "no text fits it"),
        (StructuredOutput(grammar='start: "a" <|nowhere|>'), "unknown special token"),
        (StructuredOutput(json_schema='{"type":"objec"}'), "Invalid type"),
    ],
)
def test_what_only_the_vocabulary_shows_is_refused_here(
    wish: StructuredOutput, reason: str
) -> None:
    compiler = GrammarCompiler(vocabulary)
    with pytest.raises(RequestError, match=reason) as caught:
        compiler.compile(wish).result(10)
    assert caught.value.field == wish.kind
    assert "following special tokens" not in str(caught.value)
    compiler.close()


def test_a_vocabulary_that_cannot_be_made_is_told_to_whoever_asked() -> None:
    def make() -> GrammarVocabulary:
        raise RequestError("no bytes", field="structured_output")

    compiler = GrammarCompiler(make)
    with pytest.raises(RequestError, match="no bytes"):
        compiler.compile(StructuredOutput(regex="a")).result(10)
    compiler.close()
