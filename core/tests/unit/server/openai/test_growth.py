from __future__ import annotations

from dougong.messages import (
    CompletionOutput,
    FinishReason,
    RequestMetrics,
    RequestOutput,
    TokenLogprobs,
)
from dougong.server.openai.growth import Growth, Piece


def output(*sequences: CompletionOutput) -> RequestOutput:
    return RequestOutput("r", None, (1,), list(sequences), RequestMetrics(0.0))


def entries(count: int) -> list[TokenLogprobs]:
    return [TokenLogprobs(i, -1.0) for i in range(count)]


def piece(growth: Growth, one: CompletionOutput, prompt: int = 0) -> Piece | None:
    return next(growth.pieces(prompt, output(one)), None)


def test_a_piece_is_what_was_not_told_before() -> None:
    growth = Growth(1, 1)
    first = piece(growth, CompletionOutput(0, "ab"))
    assert first is not None
    assert (first.text, first.offset, first.is_first) == ("ab", 0, True)
    second = piece(growth, CompletionOutput(0, "abc好"))
    assert second is not None
    assert (second.text, second.offset, second.is_first) == ("c好", 2, False)


def test_nothing_new_is_no_piece() -> None:
    growth = Growth(1, 1)
    assert piece(growth, CompletionOutput(0, "")) is None
    assert piece(growth, CompletionOutput(0, "a")) is not None
    assert piece(growth, CompletionOutput(0, "a", [1, 2])) is None


def test_tokens_without_text_are_told_where_their_probabilities_are_wanted() -> None:
    growth = Growth(1, 1)
    for count in (1, 2):
        found = piece(growth, CompletionOutput(0, "", logprobs=entries(count)))
        assert found is not None
        assert found.logprobs == entries(count)[-1:]


def test_the_end_is_told_once_even_without_text() -> None:
    growth = Growth(1, 1)
    ended = CompletionOutput(0, "", finish_reason=FinishReason.STOP, stop_reason="x")
    last = piece(growth, ended)
    assert last is not None
    assert (last.finish_reason, last.stop_reason) == ("stop", "x")
    assert piece(growth, ended) is None


def test_choices_count_over_all_prompts() -> None:
    growth = Growth(2, 2)
    found = growth.pieces(1, output(CompletionOutput(0, "a"), CompletionOutput(1, "b")))
    assert [(one.index, one.text) for one in found] == [(2, "a"), (3, "b")]
