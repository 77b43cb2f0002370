"""One answer of a request with tools: its words, its calls, and why it ended."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

from dougong.messages import FinishReason
from dougong.server.openai.call_reader import CallNews
from dougong.server.openai.growth import Piece
from dougong.server.openai.tools import ToolUse

_CALLED = "tool_calls"  # OpenAI's name for an answer that ended to have tools called


class ToolDelta(NamedTuple):
    """What a piece brought.

    Attributes:
        content: Words.
        tool_calls: In the form of a stream's events, each call at most once.
        finish_reason: Set in the last one.
    """

    content: str
    tool_calls: list[dict[str, Any]]
    finish_reason: str | None


class ToolAnswer:
    """Reads one answer.

    Args:
        use: Of the request's tools.
    """

    def __init__(self, use: ToolUse) -> None:
        self._use = use
        self._reader = use.reader()
        self._is_begun = False
        self._has_calls = False

    def read(self, piece: Piece) -> ToolDelta:
        """More of it; each piece once, in order."""
        content, news = self._news(piece)
        if self._use.is_single:
            news = [one for one in news if one.number == 0]
        self._has_calls = self._has_calls or bool(news)
        reason: str | None = piece.finish_reason
        if reason == FinishReason.STOP and self._has_calls:
            reason = _CALLED
        return ToolDelta(content, _joined(news), reason)

    def _news(self, piece: Piece) -> tuple[str, list[CallNews]]:
        if self._reader is None:
            name = None if self._is_begun else self._use.only
            self._is_begun = True
            return "", [CallNews(0, name, piece.text)] if name or piece.text else []
        content, calls = self._reader.feed(piece.text)
        if piece.finish_reason is not None:
            rest = self._reader.finish()
            content, calls = content + rest.content, calls + rest.calls
        return content, calls


def _joined(news: list[CallNews]) -> list[dict[str, Any]]:
    """One event's entry for each call; the first of a call has its id and its name."""
    joined: dict[int, dict[str, Any]] = {}
    for one in news:
        entry = joined.setdefault(one.number, {"index": one.number, "function": {"arguments": ""}})
        if one.name is not None:
            entry |= {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function"}
            entry["function"]["name"] = one.name
        entry["function"]["arguments"] += one.arguments
    return list(joined.values())
