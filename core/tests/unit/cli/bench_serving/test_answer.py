from __future__ import annotations

import json
from typing import Any

import pytest

from dougong.cli.bench_serving.answer import read_answer
from dougong.cli.http_exchange import Exchange

DONE = b"data: [DONE]\n\n"


def event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def text(piece: str) -> bytes:
    return event({"choices": [{"text": piece, "finish_reason": None}]})


def exchange(*pieces: bytes, status: int = 200, error: str | None = None) -> Exchange:
    """Pieces a second apart; the first one after one second."""
    timed = [(float(second), piece) for second, piece in enumerate(pieces, 1)]
    return Exchange(0.0, status, timed, ended_s=len(pieces), error=error)


USAGE = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 4}})


def test_times_are_those_of_events_with_text() -> None:
    opening = event({"choices": [{"text": ""}]})
    answer = read_answer(exchange(opening, text("a"), text("b"), text("c"), USAGE, DONE), due_s=0.0)
    assert answer.error is None
    assert (answer.first_s, answer.whole_s) == (2.0, 4.0)
    assert answer.gaps_s == [1.0, 1.0]
    assert (answer.num_input, answer.num_output) == (5, 4)
    assert answer.per_token_s == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "delta", [{"content": "a"}, {"reasoning_content": "a"}, {"tool_calls": [{"index": 0}]}]
)
def test_a_chat_speaks_in_deltas_and_its_opening_is_no_text(delta: dict[str, Any]) -> None:
    opening = event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    answer = read_answer(exchange(opening, event({"choices": [{"delta": delta}]}), DONE), 0.0)
    assert answer.error is None
    assert answer.text_s == [2.0]


def test_events_may_share_a_piece_or_be_cut_and_end_in_either_way() -> None:
    whole = text("b").replace(b"\n", b"\r\n")
    answer = read_answer(exchange(text("a") + whole[:9], whole[9:], b": a comment\n\n" + DONE), 0.0)
    assert answer.error is None
    assert answer.text_s == [1.0, 2.0]


def test_a_server_that_does_not_count_has_its_events_counted() -> None:
    answer = read_answer(exchange(text("a"), text("b"), DONE), 0.0)
    assert answer.num_output == 2


def test_one_token_has_no_time_per_token() -> None:
    assert read_answer(exchange(text("a"), DONE), 0.0).per_token_s is None


@pytest.mark.parametrize(
    ("came", "error"),
    [
        (exchange(b'{"error": "no"}', status=429), 'status 429: {"error": "no"}'),
        (exchange(status=0, error="no connection: refused"), "no connection: refused"),
        (exchange(text("a")), "the stream ended without [DONE]"),
        (exchange(text("a"), error="the connection ended: x"), "the stream ended without [DONE]"),
        (exchange(text("a"), DONE, error="the connection ended: x"), "the connection ended: x"),
        (exchange(text("a"), event({"error": "died"})), "the stream ended with an error: died"),
        (exchange(b"data: {\n\n", DONE), "an event is not JSON"),
        (exchange(DONE), "the answer has no text"),
    ],
)
def test_what_is_not_whole_says_why(came: Exchange, error: str) -> None:
    told = read_answer(came, 0.0).error
    assert told is not None
    assert told.startswith(error)
