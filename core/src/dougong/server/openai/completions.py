"""``POST /v1/completions``: continue prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from dougong.errors import RequestError
from dougong.server.body import read_body
from dougong.server.openai.answering import Work, answer_stream, answer_whole
from dougong.server.openai.completion_answer import CompletionAnswer
from dougong.server.openai.sampling import Count, SamplingFields, sampling_params
from dougong.server.openai.structured import structured_output
from dougong.server.serving import Serving, serving_of

router = APIRouter(tags=["OpenAI"])

MAX_PROMPTS = 256
_NEUTRAL: Mapping[str, Sequence[Any]] = {"best_of": (1,), "suffix": ("",)}


Prompts = str | list[int | str | list[int]]


class CompletionRequest(SamplingFields, frozen=True, kw_only=True):
    """A prompt or several, as text or token ids."""

    prompt: Prompts
    logprobs: Count | None = None
    best_of: Any = None
    echo: bool | None = None
    suffix: Any = None


@router.post("/v1/completions", response_model=None)
async def complete(request: Request, serving: Annotated[Serving, Depends(serving_of)]) -> Response:
    """Continue every prompt ``n`` times."""
    asked = await read_body(request, CompletionRequest, serving.settings.max_body_bytes)
    model = serving.check_model(asked.model)
    structured, spelling = structured_output(asked.response_format, asked.structured_outputs)
    params = sampling_params(
        asked,
        neutral=_NEUTRAL,
        logprobs=asked.logprobs,
        prompt_logprobs=_prompt_logprobs(asked),
        structured_output=structured,
    )
    prompts = await _token_ids(serving, asked.prompt)
    answer = CompletionAnswer(
        serving,
        model.name,
        n=params.n,
        num_top=params.logprobs or 0,
        num_prompt_top=asked.prompt_logprobs,
        echo=await _texts(serving, asked.prompt, prompts) if asked.echo else None,
    )
    work = Work(
        route="completions",
        prompts=prompts,
        params=params,
        has_usage=bool(asked.stream_options and asked.stream_options.include_usage),
        whole=answer.whole,
        chunks=answer.chunks,
        bare_chunk=answer.bare_chunk,
        lora=model.lora,
        spelling=spelling,
    )
    return await (answer_stream if asked.stream else answer_whole)(request, serving, work)


def _prompt_logprobs(asked: CompletionRequest) -> int | None:
    """As many as either wish needs: an echo has log-probabilities where the answer has."""
    echoed = asked.logprobs if asked.echo else None
    wanted = [count for count in (asked.prompt_logprobs, echoed) if count is not None]
    return max(wanted, default=None)


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


async def _texts(
    serving: Serving, prompt: Prompts, token_ids: Sequence[Sequence[int]]
) -> list[str]:
    """Every prompt as a text: as it was given, or what its ids spell."""
    given = _one_by_one(serving, prompt)
    return [
        one if isinstance(one, str) else await serving.text.decode(ids)
        for one, ids in zip(given, token_ids, strict=True)
    ]


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
