"""``POST /v1/embeddings``: texts to vectors."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from dougong.engine.embedding_checks import check_makes_vectors, check_pooling, prompt_of
from dougong.engine.prompts import check_token_ids
from dougong.errors import CapacityError, RequestError
from dougong.messages import EmbeddingOutput, PoolingParams
from dougong.server.body import WireModel, read_body
from dougong.server.disconnect import CLIENT_GONE_STATUS, ClientGoneError, while_connected
from dougong.server.openai.sampling import Positive
from dougong.server.serving import Serving, serving_of

router = APIRouter(tags=["OpenAI"])

MAX_INPUTS = 2048
Input = str | list[int | str | list[int]]


class EmbeddingRequest(WireModel, frozen=True, kw_only=True):
    """A text or several, as text or token ids; ``null`` is the same as leaving a field out.

    ``normalize`` and ``prompt_name`` are this server's own; ``user`` changes no answer.
    """

    input: Input
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Positive | None = None
    normalize: bool | None = None
    prompt_name: Annotated[str, msgspec.Meta(max_length=1024)] | None = None
    user: str | None = None


@router.post("/v1/embeddings", response_model=None)
async def embed(request: Request, serving: Annotated[Serving, Depends(serving_of)]) -> Response:
    """A vector of each text."""
    asked = await read_body(request, EmbeddingRequest, serving.settings.max_body_bytes)
    model = serving.check_model(asked.model)
    params = _params(serving, asked)
    prompts = await _token_ids(serving, asked)
    try:
        outputs = await while_connected(request.receive, _embed_all(serving, prompts, params))
    except ClientGoneError:
        return Response(status_code=CLIENT_GONE_STATUS)
    body = _answer(model.name, outputs, is_base64=asked.encoding_format == "base64")
    return Response(msgspec.json.encode(body), media_type="application/json")


def _params(serving: Serving, asked: EmbeddingRequest) -> PoolingParams:
    """What every vector is to be, checked before any text is read."""
    params = PoolingParams(dimensions=asked.dimensions, normalize=asked.normalize)
    check_pooling(params, check_makes_vectors(serving.report.pooling))
    return params


async def _token_ids(serving: Serving, asked: EmbeddingRequest) -> list[list[int]]:
    """Every text as the model reads it.

    Raises:
        RequestError: There is none or there are too many, or one can never be served.
    """
    before = prompt_of(asked.prompt_name, check_makes_vectors(serving.report.pooling))
    found = []
    for one in _one_by_one(serving, asked.input):
        if isinstance(one, str):
            ids = await serving.text.encode(before + one)
            _check_length(serving, len(ids))
        else:
            if asked.prompt_name is not None:
                raise RequestError(
                    "prompt_name goes with texts; token ids are read as they are.",
                    field="prompt_name",
                )
            ids = one
            _check_length(serving, len(ids))
            check_token_ids("input", ids, serving.report.vocab_size)
        found.append(ids)
    return found


def _one_by_one(serving: Serving, given: Input) -> Sequence[str | list[int]]:
    """Texts and lists of ids; a long list is measured before it is looked through."""
    if isinstance(given, str):
        return [given]
    if given and isinstance(given[0], int):
        _check_length(serving, len(given))
        ids = [one for one in given if isinstance(one, int)]
        _check_is_of_one_kind(len(ids), len(given))
        return [ids]
    if not 0 < len(given) <= MAX_INPUTS:
        raise RequestError(
            f"input holds {len(given)} texts; it takes 1 to {MAX_INPUTS}.", field="input"
        )
    kind = type(given[0])
    several = [one for one in given if isinstance(one, kind) and not isinstance(one, int)]
    _check_is_of_one_kind(len(several), len(given))
    return several


def _check_is_of_one_kind(count: int, whole: int) -> None:
    if count != whole:
        raise RequestError(
            "input mixes kinds; it takes a text, texts, token ids, or lists of token ids.",
            field="input",
        )


def _check_length(serving: Serving, num_tokens: int) -> None:
    most = serving.report.limits.max_pooled_len
    if num_tokens > most:
        raise RequestError(
            f"A text of input has {num_tokens} tokens and can have at most {most}. Shorten it.",
            field="input",
        )
    if not num_tokens:
        raise RequestError("A text of input has no tokens. Leave it out.", field="input")


async def _embed_all(
    serving: Serving, prompts: Sequence[list[int]], params: PoolingParams
) -> list[EmbeddingOutput]:
    """Vectors of all texts, side by side; who leaves ends them all.

    Raises:
        RequestError: One of them can never be served.
        CapacityError: There is no room now, or the server stops.
        EngineDeadError: The engine is gone.
    """
    outcome, metrics = "aborted", serving.metrics
    try:
        with serving.admission.admit(len(prompts)):
            outputs = await _gather(serving, prompts, params)
        outcome = "finished"
        for output in outputs:
            metrics.prompt_tokens.inc(len(output.prompt_token_ids))
            metrics.cached_tokens.inc(output.num_cached_tokens)
            if (finished_s := output.metrics.finished_s) is not None:
                metrics.duration.observe(finished_s - output.metrics.arrival_s)
    except (RequestError, CapacityError):
        outcome = "refused"
        raise
    except Exception as error:
        outcome = "failed"
        serving.watch.note(error)
        raise
    finally:
        metrics.requests.labels("embeddings", outcome).inc()
    return outputs


async def _gather(
    serving: Serving, prompts: Sequence[list[int]], params: PoolingParams
) -> list[EmbeddingOutput]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(serving.engine.embed(prompt, params)) for prompt in prompts]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _answer(
    model: str, outputs: Sequence[EmbeddingOutput], *, is_base64: bool
) -> Mapping[str, Any]:
    num_tokens = sum(len(output.prompt_token_ids) for output in outputs)
    return {
        "object": "list",
        "data": [
            {
                "object": "embedding",
                "index": index,
                "embedding": _in_base64(output.embedding) if is_base64 else output.embedding,
            }
            for index, output in enumerate(outputs)
        ],
        "model": model,
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }


def _in_base64(values: Sequence[float]) -> str:
    """float32, little-endian."""
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode("ascii")
