"""``POST /v1/completions``: continue prompts."""

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
from dougong.server.openai.logprobs import completion_logprobs
from dougong.server.openai.sampling import Count, SamplingFields, sampling_params
from dougong.server.openai.usage import usage
from dougong.server.serving import Serving, serving_of

router = APIRouter(tags=["OpenAI"])

MAX_PROMPTS = 256
_NEUTRAL: Mapping[str, Sequence[Any]] = {"best_of": (1,), "echo": (False,), "suffix": ("",)}


Prompts = str | list[int | str | list[int]]


class CompletionRequest(SamplingFields, frozen=True, kw_only=True):
    """A prompt or several, as text or token ids."""

    prompt: Prompts
    logprobs: Count | None = None
    best_of: Any = None
    echo: Any = None
    suffix: Any = None


@router.post("/v1/completions", response_model=None)
async def complete(request: Request, serving: Annotated[Serving, Depends(serving_of)]) -> Response:
    """Continue every prompt ``n`` times."""
    asked = await read_body(request, CompletionRequest, serving.settings.max_body_bytes)
    name = serving.check_model(asked.model)
    params = sampling_params(asked, neutral=_NEUTRAL, **_own(asked))
    prompts = await _token_ids(serving, asked.prompt)
    answer = _Answer(serving, name, params.logprobs)
    work = Work(
        route="completions",
        prompts=prompts,
        params=params,
        has_usage=bool(asked.stream_options and asked.stream_options.include_usage),
        whole=lambda outputs: answer.whole(outputs, params.n),
        chunk=answer.chunk,
        bare_chunk=answer.head,
    )
    return await (answer_stream if asked.stream else answer_whole)(request, serving, work)


def _own(asked: CompletionRequest) -> dict[str, Any]:
    return {} if asked.logprobs is None else {"logprobs": asked.logprobs}


async def _token_ids(serving: Serving, prompt: Prompts) -> list[list[int]]:
    """Every prompt as the model reads it.

    Raises:
        RequestError: There is none or there are too many, or one can never be served.
    """
    found = []
    for one in _one_by_one(serving, prompt):
        ids = await serving.text.encode(one) if isinstance(one, str) else one
        serving.check_prompt("prompt", ids)
        found.append(ids)
    return found


def _one_by_one(serving: Serving, prompt: Prompts) -> Sequence[str | list[int]]:
    """Texts and lists of ids; a long list is measured before it is looked through."""
    if isinstance(prompt, str):
        return [prompt]
    if prompt and isinstance(prompt[0], int):
        serving.check_length("prompt", len(prompt))
        ids = [one for one in prompt if isinstance(one, int)]
        _check_is_of_one_kind(len(ids), len(prompt))
        return [ids]
    if not 0 < len(prompt) <= MAX_PROMPTS:
        raise RequestError(
            f"prompt holds {len(prompt)} prompts; it takes 1 to {MAX_PROMPTS}.", field="prompt"
        )
    kind = type(prompt[0])
    several = [one for one in prompt if isinstance(one, kind) and not isinstance(one, int)]
    _check_is_of_one_kind(len(several), len(prompt))
    return several


def _check_is_of_one_kind(count: int, whole: int) -> None:
    if count != whole:
        raise RequestError(
            "prompt mixes kinds; it takes a text, texts, token ids, or lists of token ids.",
            field="prompt",
        )


class _Answer:
    """Writes one request's answer."""

    def __init__(self, serving: Serving, model: str, num_top: int | None) -> None:
        self._tokenizer = serving.engine.tokenizer
        self._num_top = num_top or 0
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    def head(self) -> dict[str, Any]:
        return {**self._head, "choices": []}

    def chunk(self, piece: Piece) -> dict[str, Any]:
        return {**self._head, "choices": [self._choice(piece)]}

    def whole(self, outputs: Sequence[RequestOutput], n: int) -> dict[str, Any]:
        growth = Growth(len(outputs), n)
        choices = [
            self._choice(piece)
            for index, output in enumerate(outputs)
            for piece in growth.pieces(index, output)
        ]
        return {**self._head, "choices": choices, "usage": usage(outputs)}

    def _choice(self, piece: Piece) -> dict[str, Any]:
        logprobs = None
        if piece.logprobs is not None:
            logprobs = completion_logprobs(
                piece.logprobs, self._num_top, self._tokenizer, piece.offset
            )
        return {
            "index": piece.index,
            "text": piece.text,
            "logprobs": logprobs,
            "finish_reason": piece.finish_reason,
            "stop_reason": piece.stop_reason,
        }
