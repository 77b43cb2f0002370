from __future__ import annotations

from typing import Any

from dougong.engine.sequence_text import SequenceText
from dougong.engine.tokenizer import Tokenizer
from dougong.messages import FinishReason, RequestDelta, SamplingParams, TokenLogprobs

EOS = 257


class Sequence:
    """One sequence, fed with one token per byte."""

    def __init__(self, tokenizer: Tokenizer, **params: Any) -> None:
        self.tokenizer = tokenizer
        self.text = SequenceText(
            0, SamplingParams(**params), tokenizer.detokenizer(), frozenset({EOS})
        )

    def feed(self, data: str | bytes, *, finish: FinishReason | None = None) -> bool:
        raw = data.encode() if isinstance(data, str) else data
        ids = [self._id(byte) for byte in raw]
        must_abort = False
        for position, token_id in enumerate(ids):
            reason = finish if position == len(ids) - 1 else None
            must_abort = self.text.apply(RequestDelta("r", [token_id], finish_reason=reason))
        return must_abort

    def stop(self, token_id: int) -> None:
        self.text.apply(
            RequestDelta("r", [token_id], finish_reason=FinishReason.STOP, stop_token_id=token_id)
        )

    def _id(self, byte: int) -> int:
        return next(i for i in range(256) if self.tokenizer.token_bytes(i) == bytes([byte]))


def test_text_grows_with_the_tokens_and_never_ends_inside_a_character(tokenizer: Tokenizer) -> None:
    sequence = Sequence(tokenizer)
    sequence.feed("ab" + "é")
    assert sequence.text.output.text == "abé"
    sequence.feed("é".encode()[:1])
    assert sequence.text.output.text == "abé"
    assert len(sequence.text.output.token_ids) == 5


def test_a_cut_inside_a_character_ends_with_one_mark(tokenizer: Tokenizer) -> None:
    sequence = Sequence(tokenizer)
    sequence.feed(b"ab" + "好".encode()[:2], finish=FinishReason.LENGTH)
    assert sequence.text.output.text == "ab\N{REPLACEMENT CHARACTER}"


def test_the_eos_token_has_no_text_and_no_stop_reason(tokenizer: Tokenizer) -> None:
    sequence = Sequence(tokenizer, skip_special_tokens=False)
    sequence.feed("ab")
    sequence.stop(EOS)
    output = sequence.text.output
    assert (output.text, output.finish_reason, output.stop_reason) == ("ab", "stop", None)
    assert output.token_ids[-1] == EOS


def test_a_stop_token_is_named_and_shown_only_when_asked(tokenizer: Tokenizer) -> None:
    for is_included in (False, True):
        sequence = Sequence(tokenizer, include_stop_str_in_output=is_included)
        sequence.feed("a")
        sequence.stop(sequence._id(ord("b")))
        output = sequence.text.output
        assert output.text == ("ab" if is_included else "a")
        assert output.stop_reason == sequence._id(ord("b"))


def test_a_stop_string_ends_the_sequence_and_the_engine_must_be_told(tokenizer: Tokenizer) -> None:
    sequence = Sequence(tokenizer, stop="END")
    assert sequence.feed("text EN") is False
    assert sequence.text.output.text == "text "
    assert sequence.feed("D") is True
    output = sequence.text.output
    assert (output.text, output.finish_reason, output.stop_reason) == ("text ", "stop", "END")


def test_a_stop_string_in_the_last_allowed_token_is_a_stop(tokenizer: Tokenizer) -> None:
    sequence = Sequence(tokenizer, stop="END")
    assert sequence.feed("text END", finish=FinishReason.LENGTH) is False
    assert sequence.text.output.finish_reason == "stop"
    assert sequence.text.output.text == "text "


def test_a_near_miss_is_delivered_at_the_end(tokenizer: Tokenizer) -> None:
    sequence = Sequence(tokenizer, stop="END")
    sequence.feed("text EN", finish=FinishReason.LENGTH)
    assert sequence.text.output.text == "text EN"
    assert sequence.text.output.finish_reason == "length"


def test_a_stop_string_before_min_tokens_does_not_count(tokenizer: Tokenizer) -> None:
    sequence = Sequence(tokenizer, stop="END", min_tokens=4, max_tokens=50)
    sequence.feed("END.")
    assert sequence.text.output.text == "END."
    assert sequence.feed("END") is True
    assert sequence.text.output.text == "END."


def test_an_abort_keeps_what_was_shown_and_held_back(tokenizer: Tokenizer) -> None:
    sequence = Sequence(tokenizer, stop="END")
    sequence.feed("text EN")
    sequence.text.abort()
    assert sequence.text.output.text == "text EN"
    assert sequence.text.output.finish_reason == "abort"


def test_logprobs_are_kept_where_they_were_asked_for(tokenizer: Tokenizer) -> None:
    sequence = Sequence(tokenizer, logprobs=0)
    entry = TokenLogprobs(1, -0.5)
    sequence.text.apply(RequestDelta("r", [1], logprobs=[entry]))
    assert sequence.text.output.logprobs == [entry]
    assert Sequence(tokenizer).text.output.logprobs is None


def test_a_stop_string_that_straddles_min_tokens_counts(tokenizer: Tokenizer) -> None:
    for is_included in (False, True):
        sequence = Sequence(
            tokenizer,
            stop="END",
            min_tokens=4,
            max_tokens=50,
            include_stop_str_in_output=is_included,
        )
        sequence.feed("abEN")
        assert sequence.text.output.text == ("abEN" if is_included else "ab")
        assert sequence.feed("D") is True
        output = sequence.text.output
        assert (output.text, output.stop_reason) == ("abEND" if is_included else "ab", "END")


def test_text_held_back_before_min_tokens_is_delivered(tokenizer: Tokenizer) -> None:
    sequence = Sequence(tokenizer, stop="END", min_tokens=4, max_tokens=4)
    sequence.feed("abEN", finish=FinishReason.LENGTH)
    assert sequence.text.output.text == "abEN"
