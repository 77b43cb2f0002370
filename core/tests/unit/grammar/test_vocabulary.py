from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dougong.grammar import GrammarCompiler
from dougong.grammar.vocabulary import library_tokenizer
from dougong.messages import StructuredOutput
from tests.unit.grammar.tiny import EOS, LONGER, NUM_TOKENS, TURN, allowed_next, ids, vocabulary


def test_the_library_knows_every_logit_and_which_tokens_end_a_text() -> None:
    tokenizer = library_tokenizer(vocabulary())
    assert tokenizer.vocab_size == NUM_TOKENS
    assert sorted(tokenizer.eos_tokens) == [EOS, TURN]
    assert tokenizer.tokenize_str("ab") == list(b"ab")
    assert vocabulary().num_words == 10


def spaced(text: str) -> list[int]:
    return ids(f" {text}")


def nothing(text: str) -> list[int]:
    return []


@pytest.mark.parametrize("encode", [ids, spaced, nothing])
def test_a_forced_text_is_its_own_bytes_however_the_tokenizer_spells(
    encode: Callable[[str], list[int]],
) -> None:
    compiler = GrammarCompiler(lambda: replace(vocabulary(), encode=encode))
    follower = compiler.compile(StructuredOutput(choice=["yes, true"])).result(10)
    drawn = ""
    while not follower.is_complete:
        token = max(allowed_next(follower))  # the longest that may come
        assert follower.advance([token]) is None
        drawn += vocabulary().token_bytes[token].decode()
    assert drawn == "yes, true"
    compiler.close()


def test_a_text_is_spelt_with_the_longest_tokens_where_the_tokenizer_adds_something() -> None:
    tokenizer = library_tokenizer(replace(vocabulary(), encode=spaced))
    yes, ab = (258 + LONGER.index(one) for one in ("yes", "ab"))
    assert tokenizer.tokenize_str("yesab!") == [yes, ab, ord("!")]
