"""A conversation as clients send it, and as a chat template reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from dougong.errors import RequestError
from dougong.server.body import WireModel
from dougong.server.openai.tools import MAX_TOOLS

MAX_PARTS = 4096
_MAX_ID = 256  # characters


class TextPart(WireModel, frozen=True, kw_only=True):
    """A piece of a message; text is all that is read."""

    type: Literal["text"]
    text: str


Content = str | Annotated[list[TextPart], msgspec.Meta(max_length=MAX_PARTS)]
Name = Annotated[str, msgspec.Meta(max_length=_MAX_ID)]


class CalledFunction(WireModel, frozen=True, kw_only=True):
    """What a call asks for; the arguments are the JSON text of an object."""

    name: Name
    arguments: str


class ToolCall(WireModel, frozen=True, kw_only=True):
    """A call that the assistant made."""

    id: Name
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None  # of a stream's deltas; clients that join them keep it


class SystemMessage(WireModel, frozen=True, kw_only=True, tag_field="role", tag="system"):
    """How to answer."""

    content: Content
    name: Name | None = None


class DeveloperMessage(WireModel, frozen=True, kw_only=True, tag_field="role", tag="developer"):
    """The same, under OpenAI's newer name."""

    content: Content
    name: Name | None = None


class UserMessage(WireModel, frozen=True, kw_only=True, tag_field="role", tag="user"):
    """A turn of the user's."""

    content: Content
    name: Name | None = None


class AssistantMessage(WireModel, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    """A turn of the model's: words, calls of tools, or both.

    The last four are what answers have beside them; as they come, so they may be sent back.
    """

    content: Content | None = None
    name: Name | None = None
    tool_calls: Annotated[list[ToolCall], msgspec.Meta(max_length=MAX_TOOLS)] | None = None
    refusal: str | None = None
    annotations: Annotated[list[Any], msgspec.Meta(max_length=0)] | None = None
    audio: None = None
    function_call: None = None


class ToolMessage(WireModel, frozen=True, kw_only=True, tag_field="role", tag="tool"):
    """What a tool answered."""

    content: Content
    tool_call_id: Name
    name: Name | None = None


ChatMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage
Messages = Annotated[list[ChatMessage], msgspec.Meta(min_length=1, max_length=MAX_PARTS)]


def plain_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Messages as templates read them: text in one piece, arguments of calls as objects.

    A key is there only where it says something; a tool's answer has the name of what was called.

    Raises:
        RequestError: An assistant's message is empty, or arguments are no JSON object.
    """
    plain: list[dict[str, Any]] = []
    called: dict[str, str] = {}
    for index, message in enumerate(messages):
        text = _text(message.content)
        turn: dict[str, Any] = {"role": message.__struct_config__.tag, "content": text}
        if message.name is not None:
            turn["name"] = message.name
        if isinstance(message, AssistantMessage):
            _check_says_something(message, index)
            if message.tool_calls:
                turn["tool_calls"] = _plain_calls(message.tool_calls, index)
                called |= {call.id: call.function.name for call in message.tool_calls}
        elif isinstance(message, ToolMessage):
            turn["tool_call_id"] = message.tool_call_id
            if message.name is None and message.tool_call_id in called:
                turn["name"] = called[message.tool_call_id]
        plain.append(turn)
    return plain


def _text(content: Content | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content)


def _check_says_something(message: AssistantMessage, index: int) -> None:
    if message.content is None and not message.tool_calls:
        raise RequestError(
            f"messages.{index} has neither content nor tool_calls; give one of them.",
            field=f"messages.{index}.content",
        )


def _plain_calls(calls: Sequence[ToolCall], index: int) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id,
            "type": call.type,
            "function": {
                "name": call.function.name,
                "arguments": _arguments(
                    call.function.arguments,
                    f"messages.{index}.tool_calls.{number}.function.arguments",
                ),
            },
        }
        for number, call in enumerate(calls)
    ]


def _arguments(text: str, field: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text, parse_constant=_refuse_constant) if text.strip() else {}
        json.dumps(found)  # as deep as it goes, a template can write it
    except (ValueError, RecursionError) as error:
        raise RequestError(
            f"{field} is no JSON text: {str(error)[:200]}. Send a JSON object, as text.",
            field=field,
        ) from None
    if not isinstance(found, dict):
        raise RequestError(f"{field} is no JSON object; send one, or '{{}}'.", field=field)
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
