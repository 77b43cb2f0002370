"""A text that follows a grammar: what may come, where it ends, where it cannot go on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from dougong.errors import RequestError
from dougong.grammar import GrammarCompiler, GrammarFollower
from dougong.messages import StructuredOutput
from tests.unit.grammar.tiny import EOS, LONGER, TURN, allowed, ids, vocabulary

ENDS = {EOS, TURN}


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(vocabulary)


def start(
    compiler: GrammarCompiler, regex: str, quiet: tuple[int, ...] = (), min_tokens: int = 0
) -> GrammarFollower:
    compiled = compiler.compile(StructuredOutput(regex=regex)).result()
    return compiled.copy(quiet_ids=quiet, min_tokens=min_tokens)


def mask_of(follower: GrammarFollower) -> npt.NDArray[np.int32]:
    mask = np.frombuffer(follower.matcher.compute_bitmask(), np.int32).copy()
    follower.note_mask(mask)
    return mask


def test_a_mask_allows_every_token_that_may_come_next_and_no_other(
    compiler: GrammarCompiler,
) -> None:
    follower = start(compiler, "yes|yacht|abc?")
    longer = {258 + LONGER.index("yes"), 258 + LONGER.index("ab")}
    assert allowed(mask_of(follower)) == {*ids("ya"), *longer}
    assert follower.advance(ids("ab")) is None
    assert allowed(mask_of(follower)) == {*ids("c"), *ENDS}


def test_special_and_padding_ids_are_no_text(compiler: GrammarCompiler) -> None:
    follower = start(compiler, r"(.|\n)*")
    found = allowed(mask_of(follower))
    assert found.isdisjoint(range(264, 320))  # beyond the vocabulary, too
    assert found >= {*range(128), *range(258, 264), *ENDS}
    assert start(compiler, "<eos>").advance(ids("<eos>")) is None  # its letters are


def test_a_text_is_complete_where_nothing_may_follow(compiler: GrammarCompiler) -> None:
    follower = start(compiler, "no|nob?")
    follower.advance(ids("no"))
    assert not follower.is_complete
    follower.advance(ids("b"))
    assert follower.is_complete
    assert follower.error is None


def test_the_end_of_a_text_is_a_token_like_others(compiler: GrammarCompiler) -> None:
    follower = start(compiler, "a*")
    assert follower.advance([*ids("aa"), TURN]) is None
    assert start(compiler, "aa").advance([*ids("a"), EOS]) is not None


def test_tokens_are_judged_by_the_last_mask(compiler: GrammarCompiler) -> None:
    follower = start(compiler, "ab")
    assert follower.allows(7)  # no mask yet
    mask_of(follower)
    assert follower.allows(ord("a"))
    assert not follower.allows(ord("b"))
    assert not follower.allows(299)


def test_quiet_tokens_wait_for_their_number_of_tokens(compiler: GrammarCompiler) -> None:
    follower = start(compiler, "a*", quiet=(EOS, TURN), min_tokens=2)
    for _ in range(2):
        assert allowed(mask_of(follower)) == set(ids("a"))
        follower.advance(ids("a"))
    assert allowed(mask_of(follower)) == {*ids("a"), *ENDS}


def test_quiet_tokens_come_where_nothing_else_can(compiler: GrammarCompiler) -> None:
    follower = start(compiler, "abx", quiet=(EOS, TURN, ord("x")), min_tokens=9)
    follower.advance(ids("ab"))
    assert allowed(mask_of(follower)) == set(ids("x"))


def test_copies_go_their_own_ways(compiler: GrammarCompiler) -> None:
    first, second = start(compiler, "ab|cd"), start(compiler, "ab|cd")
    first.advance(ids("a"))
    second.advance(ids("c"))
    assert allowed(mask_of(first)) == set(ids("b"))
    assert allowed(mask_of(second)) == set(ids("d"))


def test_a_wrong_token_and_whatever_follows_is_an_error(compiler: GrammarCompiler) -> None:
    follower = start(compiler, "ab")
    error = follower.advance(ids("b"))
    assert isinstance(error, RequestError)
    assert error.field == "regex"
    assert follower.error is not None
    assert not follower.is_complete


def test_a_mask_without_a_token_is_a_dead_end(compiler: GrammarCompiler) -> None:
    follower = start(compiler, "ab")
    follower.note_mask(np.zeros(10, np.int32))
    assert follower.error is not None
    assert "no text fits it" in str(follower.error)
