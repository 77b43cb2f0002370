"""A chat request's answer, whole or in pieces, in OpenAI's form."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from dougong.messages import RequestOutput
from dougong.server.openai.growth import Growth, Piece
from dougong.server.openai.logprobs import chat_logprobs, prompt_logprobs
from dougong.server.openai.tool_answer import ToolAnswer
from dougong.server.openai.tools import ToolUse
from dougong.server.openai.usage import usage
from dougong.server.serving import Serving


class ChatAnswer:
    """Writes one request's answer.

    Args:
        serving: The engine and its server.
        model: What the client called the model.
        n: Answers.
        num_top: Most likely tokens to show with each log-probability.
        num_prompt_top: The same of the prompt; ``None``: nothing of it is shown.
        tools: What is done with them.
    """

    def __init__(
        self,
        serving: Serving,
        model: str,
        *,
        n: int,
        num_top: int,
        num_prompt_top: int | None,
        tools: ToolUse,
    ) -> None:
        self._tokenizer = serving.engine.tokenizer
        self._num_top = num_top
        self._num_prompt_top = num_prompt_top
        self._n = n
        self._tools = [ToolAnswer(tools) for _ in range(n)] if tools.is_used else None
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = model

    def bare_chunk(self) -> dict[str, Any]:
        """An event without choices."""
        return {**self._head("chat.completion.chunk"), "choices": []}

    def chunks(self, piece: Piece, output: RequestOutput) -> Sequence[dict[str, Any]]:
        """The events of a piece; none where it has nothing to tell yet."""
        delta: dict[str, Any] = {"role": "assistant"} if piece.is_first else {}
        reason: str | None = piece.finish_reason
        after: list[dict[str, Any]] = []
        if self._tools is None:
            if piece.text or piece.is_first:
                delta["content"] = piece.text
        else:
            content, calls, reason = self._tools[piece.index].read(piece)
            if content or (piece.is_first and not calls):
                delta["content"] = content
            if calls:
                delta["tool_calls"] = calls
            if calls and reason is not None:  # clients end a call when they are told of the end
                after.append(self._chunk(piece, {}, None, reason))
                reason = None
        if not (delta or piece.logprobs or reason):
            return after
        logprobs = self._logprobs(piece)
        chunk = self._chunk(piece, delta, logprobs, reason)
        if piece.is_first and piece.index == 0:
            chunk |= self._prompt(output)
        return [chunk, *after]

    def whole(self, outputs: Sequence[RequestOutput]) -> dict[str, Any]:
        """The body."""
        (output,) = outputs
        choices = [self._choice(piece) for piece in Growth(1, self._n).pieces(0, output)]
        head = self._head("chat.completion")
        return {**head, "choices": choices, "usage": usage(outputs), **self._prompt(output)}

    def _choice(self, piece: Piece) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": piece.text, "refusal": None}
        reason: str | None = piece.finish_reason
        if self._tools is not None:
            content, calls, reason = self._tools[piece.index].read(piece)
            message["content"] = content
            if calls:
                message["content"] = content or None
                message["tool_calls"] = [_without_index(call) for call in calls]
        end = _end(piece, self._logprobs(piece), reason)
        return {"index": piece.index, "message": message, **end}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    def _prompt(self, output: RequestOutput) -> dict[str, Any]:
        if self._num_prompt_top is None:
            return {}
        found = output.prompt_logprobs or ()
        shown = prompt_logprobs(found, self._num_prompt_top, self._tokenizer)
        return {"prompt_logprobs": shown}

    def _chunk(
        self,
        piece: Piece,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None,
        reason: str | None,
    ) -> dict[str, Any]:
        choice = {"index": piece.index, "delta": delta, **_end(piece, logprobs, reason)}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _logprobs(self, piece: Piece) -> dict[str, Any] | None:
        if piece.logprobs is None:
            return None
        return chat_logprobs(piece.logprobs, self._num_top, self._tokenizer)


def _end(piece: Piece, logprobs: dict[str, Any] | None, reason: str | None) -> dict[str, Any]:
    return {"logprobs": logprobs, "finish_reason": reason, "stop_reason": piece.stop_reason}


def _without_index(call: dict[str, Any]) -> dict[str, Any]:
    """In a whole answer the order says it."""
    return {key: call[key] for key in ("id", "type", "function")}
