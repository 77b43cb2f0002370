"""A conversation as clients send it, and as a chat template reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from dougong.server.body import WireModel

MAX_PARTS = 4096


class TextPart(WireModel, frozen=True, kw_only=True):
    """A piece of a message; text is all that is read."""

    type: Literal["text"]
    text: str


class ChatMessage(WireModel, frozen=True, kw_only=True):
    """One turn. Tool calls are not taken yet."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], msgspec.Meta(max_length=MAX_PARTS)]
    name: Annotated[str, msgspec.Meta(max_length=256)] | None = None


Messages = Annotated[list[ChatMessage], msgspec.Meta(min_length=1, max_length=MAX_PARTS)]


def plain_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Messages with their text in one piece; names only where they were given."""
    return [_plain(message) for message in messages]


def _plain(message: ChatMessage) -> dict[str, Any]:
    content = message.content
    text = content if isinstance(content, str) else "".join(part.text for part in content)
    plain = {"role": message.role, "content": text}
    return plain if message.name is None else {**plain, "name": message.name}
