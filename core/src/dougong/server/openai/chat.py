"""``POST /v1/chat/completions``: answer conversations."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from dougong.errors import RequestError
from dougong.messages import RequestOutput
from dougong.server.body import read_body
from dougong.server.openai.answering import Work, answer_stream, answer_whole
from dougong.server.openai.growth import Growth, Piece
from dougong.server.openai.logprobs import chat_logprobs
from dougong.server.openai.messages import Messages, plain_messages
from dougong.server.openai.sampling import Count, Positive, SamplingFields, sampling_params
from dougong.server.openai.usage import usage
from dougong.server.serving import Serving, serving_of

router = APIRouter(tags=["OpenAI"])

_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
}
"""Fields of OpenAI's → values under which the answer is the same."""
_TEMPLATE_NAMES = frozenset({"messages", "tools", "documents", "add_generation_prompt"})


class ChatRequest(SamplingFields, frozen=True, kw_only=True):
    """A conversation, to be answered up to the model's length unless told otherwise."""

    messages: Messages
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: Count | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None
    web_search_options: Any = None
    service_tier: Any = None
    store: Any = None


@router.post("/v1/chat/completions", response_model=None)
async def chat(request: Request, serving: Annotated[Serving, Depends(serving_of)]) -> Response:
    """Answer a conversation ``n`` times."""
    asked = await read_body(request, ChatRequest, serving.settings.max_body_bytes)
    name = serving.check_model(asked.model)
    params = sampling_params(
        asked, neutral=_NEUTRAL, max_tokens=_max_tokens(asked), logprobs=_logprobs(asked)
    )
    _check_variables(asked)
    ids = await serving.text.encode_chat(
        plain_messages(asked.messages), variables=asked.chat_template_kwargs
    )
    serving.check_prompt("messages", ids)
    answer = _Answer(serving, name, params.logprobs)
    work = Work(
        route="chat",
        prompts=[ids],
        params=params,
        has_usage=bool(asked.stream_options and asked.stream_options.include_usage),
        whole=lambda outputs: answer.whole(outputs, params.n),
        chunk=answer.chunk,
        bare_chunk=answer.bare_chunk,
    )
    return await (answer_stream if asked.stream else answer_whole)(request, serving, work)


def _max_tokens(asked: ChatRequest) -> int | None:
    old, new = asked.max_tokens, asked.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise RequestError(
            f"max_tokens={old} and max_completion_tokens={new} say different things. "
            "Give one of them.",
            field="max_completion_tokens",
        )
    return old if new is None else new


def _check_variables(asked: ChatRequest) -> None:
    if taken := sorted(_TEMPLATE_NAMES & set(asked.chat_template_kwargs or ())):
        raise RequestError(
            f"chat_template_kwargs cannot set {', '.join(taken)}: the server does.",
            field="chat_template_kwargs",
        )


def _logprobs(asked: ChatRequest) -> int | None:
    if asked.logprobs:
        return asked.top_logprobs or 0
    if asked.top_logprobs:
        raise RequestError(
            "top_logprobs goes with logprobs=true; set that, or leave it out.",
            field="top_logprobs",
        )
    return None


class _Answer:
    """Writes one request's answer."""

    def __init__(self, serving: Serving, model: str, num_top: int | None) -> None:
        self._tokenizer = serving.engine.tokenizer
        self._num_top = num_top or 0
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = model

    def bare_chunk(self) -> dict[str, Any]:
        return {**self._head("chat.completion.chunk"), "choices": []}

    def chunk(self, piece: Piece) -> dict[str, Any]:
        delta: dict[str, Any] = {"role": "assistant"} if piece.is_first else {}
        if piece.text or piece.is_first:
            delta["content"] = piece.text
        choice = {"index": piece.index, "delta": delta, **self._end(piece)}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def whole(self, outputs: Sequence[RequestOutput], n: int) -> dict[str, Any]:
        (output,) = outputs
        choices = [
            {
                "index": piece.index,
                "message": {"role": "assistant", "content": piece.text, "refusal": None},
                **self._end(piece),
            }
            for piece in Growth(1, n).pieces(0, output)
        ]
        return {**self._head("chat.completion"), "choices": choices, "usage": usage(outputs)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    def _end(self, piece: Piece) -> dict[str, Any]:
        logprobs = None
        if piece.logprobs is not None:
            logprobs = chat_logprobs(piece.logprobs, self._num_top, self._tokenizer)
        return {
            "logprobs": logprobs,
            "finish_reason": piece.finish_reason,
            "stop_reason": piece.stop_reason,
        }
