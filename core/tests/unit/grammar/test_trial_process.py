"""The part of a trial that runs elsewhere; its limits are tested from outside, in `test_trial`."""

from __future__ import annotations

from dougong.grammar.trial_process import read, reason_against, written
from dougong.messages import StructuredOutput
from tests.unit.grammar.tiny import EOS, NUM_TOKENS, TURN, vocabulary


def test_a_vocabulary_crosses_as_one_line_with_every_byte() -> None:
    line = written(vocabulary())
    assert "\n" not in line
    assert line.isascii()
    tokenizer = read(line)
    assert tokenizer.vocab_size == NUM_TOKENS
    assert sorted(tokenizer.eos_tokens) == [EOS, TURN]
    found = [tokenizer.decode_bytes([one]) for one in range(255)]
    assert found == vocabulary().token_bytes[:255], "255 is in no text"


def test_a_reason_is_empty_exactly_where_a_wish_can_be_followed() -> None:
    tokenizer = read(written(vocabulary()))
    assert reason_against(StructuredOutput(choice=["yes, true"]), tokenizer) == ""
    assert "unclosed group" in reason_against(StructuredOutput(regex="("), tokenizer)
    wrong = StructuredOutput(json_schema='{"type": "objec"}')
    assert "Invalid type" in reason_against(wrong, tokenizer)
