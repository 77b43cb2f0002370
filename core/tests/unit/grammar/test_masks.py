"""The masks of a step: computed elsewhere, a row for each request, in order."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dougong.grammar import GrammarCompiler, GrammarFollower, MaskMaker
from dougong.messages import StructuredOutput
from tests.unit.grammar.tiny import EOS, NUM_TOKENS, TURN, allowed, ids, vocabulary

WORDS = -(-NUM_TOKENS // 32)


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(vocabulary)


def follower(compiler: GrammarCompiler, regex: str) -> GrammarFollower:
    return compiler.compile(StructuredOutput(regex=regex)).result().copy()


def test_each_request_has_its_row_in_order(compiler: GrammarCompiler) -> None:
    maker = MaskMaker()
    texts = {f"r{one}": follower(compiler, one) for one in "cab"}
    job = maker.start(texts, WORDS)
    bits = job.result()
    assert bits.shape == (3, WORDS)
    assert bits.dtype == np.int32
    assert job.req_ids == ("rc", "ra", "rb")
    assert [allowed(row) for row in bits] == [set(ids(one)) for one in "cab"]
    assert maker.num_masks == 3
    assert maker.seconds > 0
    maker.close()


def test_a_later_step_does_not_touch_an_earlier_ones_bits(compiler: GrammarCompiler) -> None:
    maker, text = MaskMaker(), follower(compiler, "ab")
    first = maker.start({"r": text}, WORDS).result()
    text.advance(ids("a"))
    second = maker.start({"r": text}, WORDS).result()
    assert (allowed(first[0]), allowed(second[0])) == (set(ids("a")), set(ids("b")))
    maker.close()


def test_masks_are_computed_while_the_caller_does_something_else(
    compiler: GrammarCompiler,
) -> None:
    maker, gate = MaskMaker(), threading.Event()
    maker.pool.submit(gate.wait)  # whatever delays them
    job = maker.start({"r": follower(compiler, "a")}, WORDS)
    assert maker.num_masks == 0  # and the caller is here already
    gate.set()
    assert allowed(job.result()[0]) == set(ids("a"))
    assert maker.waited_s > 0
    maker.close()


def test_a_text_that_cannot_go_on_allows_all_and_spoils_no_other(
    compiler: GrammarCompiler,
) -> None:
    maker, lost = MaskMaker(), follower(compiler, "ab")
    lost.advance(ids("x"))
    bits = maker.start({"lost": lost, "well": follower(compiler, "a*")}, WORDS).result()
    assert (bits[0] == -1).all()
    assert allowed(bits[1]) == {*ids("a"), EOS, TURN}
    assert lost.error is not None
    maker.close()
