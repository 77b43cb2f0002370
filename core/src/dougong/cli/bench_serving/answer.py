"""One answer of a server under load: when its text came, how much it was, what went wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from dougong.cli.http_exchange import Exchange

_DATA = b"data:"
_DONE = b"[DONE]"
_MOST_SHOWN = 300
_decode = msgspec.json.Decoder().decode


@dataclass(slots=True)
class Answer:
    """What one request got; times are of ``perf_counter``.

    Attributes:
        due_s: When the request should have been sent.
        sent_s: When it was.
        ended_s: When its answer ended.
        text_s: When each event with text came.
        num_input: Tokens of the prompt, as the server counted them.
        num_output: Tokens of the answer, as the server counted them; of one that does not count,
            its events.
        error: Why it does not count; ``None``: it is whole.
    """

    due_s: float
    sent_s: float
    ended_s: float
    text_s: list[float] = field(default_factory=list)
    num_input: int = 0
    num_output: int = 0
    error: str | None = None

    @property
    def first_s(self) -> float:
        """Seconds to the first text."""
        return self.text_s[0] - self.sent_s

    @property
    def whole_s(self) -> float:
        """Seconds to the last text."""
        return self.text_s[-1] - self.sent_s

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between one event with text and the next."""
        return [later - sooner for sooner, later in zip(self.text_s, self.text_s[1:], strict=False)]

    @property
    def per_token_s(self) -> float | None:
        """Seconds per token after the first; ``None``: there is none."""
        if self.num_output < 2:
            return None
        return (self.text_s[-1] - self.text_s[0]) / (self.num_output - 1)


def read_answer(exchange: Exchange, due_s: float) -> Answer:
    """What a stream of OpenAI's completions or chat completions told."""
    answer = Answer(due_s, exchange.sent_s, exchange.ended_s)
    answer.error = _refusal(exchange) or _read_events(exchange, answer) or exchange.error
    if answer.error is None and not answer.text_s:
        answer.error = "the answer has no text"
    answer.num_output = answer.num_output or len(answer.text_s)
    return answer


def _refusal(exchange: Exchange) -> str | None:
    if exchange.status == 200:
        return None
    if not exchange.status:
        return exchange.error or "no answer"
    told = exchange.body.decode(errors="replace")[:_MOST_SHOWN]
    return f"status {exchange.status}: {told}"


def _read_events(exchange: Exchange, answer: Answer) -> str | None:
    """Fill in the answer; why it is not whole, where it is not."""
    is_done = False
    for come_s, data in _events(exchange):
        if data == _DONE:
            is_done = True
            continue
        try:
            event = _decode(data)
        except msgspec.DecodeError as error:
            return f"an event is not JSON: {error}"
        if error_told := event.get("error"):
            return f"the stream ended with an error: {str(error_told)[:_MOST_SHOWN]}"
        if any(_text_of(choice) for choice in event.get("choices", ())):
            answer.text_s.append(come_s)
        if usage := event.get("usage"):
            answer.num_input = usage.get("prompt_tokens", 0)
            answer.num_output = usage.get("completion_tokens", 0)
    return None if is_done else "the stream ended without [DONE]"


def _events(exchange: Exchange) -> list[tuple[float, bytes]]:
    """The data of each event, with the time at which it was whole."""
    events: list[tuple[float, bytes]] = []
    rest = b""
    for come_s, piece in exchange.pieces:
        whole, blank, rest = (rest + piece).replace(b"\r\n", b"\n").rpartition(b"\n\n")
        if not blank:
            continue
        events += [
            (come_s, event[len(_DATA) :].strip())
            for event in whole.split(b"\n\n")
            if event.startswith(_DATA)
        ]
    return events


def _text_of(choice: dict[str, Any]) -> str | None:
    if "text" in choice:
        return choice["text"] or None
    delta = choice.get("delta") or {}
    return delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls") or None
