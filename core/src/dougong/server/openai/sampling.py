"""The part of a request that says how to choose tokens, shared by both routes.

A field that OpenAI has and this engine cannot obey is taken only with the value that changes
nothing; any other value is refused by its name, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from dougong.errors import RequestError
from dougong.messages import SamplingParams
from dougong.server.body import WireModel
from dougong.server.openai.structured import ResponseFormat, StructuredOutputs

_MOST = 2**31 - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=_MOST)]
Word = Annotated[str, msgspec.Meta(max_length=1024)]
Words = Annotated[list[Word], msgspec.Meta(max_length=1024)]
TokenIds = Annotated[list[int], msgspec.Meta(max_length=8192)]


class StreamOptions(WireModel, frozen=True, kw_only=True):
    """What a stream tells beside the text."""

    include_usage: bool | None = None


class SamplingFields(WireModel, frozen=True, kw_only=True):
    """Fields of both requests; ``null`` is the same as leaving one out.

    The last four are labels that change no answer, and are kept nowhere.
    """

    model: str | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: Annotated[dict[str, float], msgspec.Meta(max_length=8192)] | None = None
    allowed_token_ids: TokenIds | None = None
    bad_words: Words | None = None
    seed: int | None = None
    max_tokens: Positive | None = None
    min_tokens: Count | None = None
    stop: Word | Words | None = None
    stop_token_ids: TokenIds | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    prompt_logprobs: Count | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    user: str | None = None
    metadata: Annotated[dict[str, str], msgspec.Meta(max_length=1024)] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


_PASSED = (
    "n", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "frequency_penalty",
    "presence_penalty", "allowed_token_ids", "bad_words", "seed", "max_tokens", "min_tokens",
    "stop", "stop_token_ids", "ignore_eos", "include_stop_str_in_output", "skip_special_tokens",
)  # fmt: skip


def sampling_params(
    asked: SamplingFields, *, neutral: Mapping[str, Sequence[Any]], **settled: Any
) -> SamplingParams:
    """What the engine is told.

    Args:
        asked: The request.
        neutral: Fields that cannot be obeyed → values that change nothing.
        settled: Parameters that the route names in its own way; they come before ``asked``.

    Raises:
        RequestError: A field cannot be obeyed or is out of range; named as the client spelt it.
    """
    for field, values in neutral.items():
        _check_neutral(field, getattr(asked, field), values)
    if asked.stream_options is not None and not asked.stream:
        raise RequestError(
            "stream_options goes with stream=true; leave it out.", field="stream_options"
        )
    given = {name: value for name in _PASSED if (value := getattr(asked, name)) is not None}
    if asked.logit_bias is not None:
        given["logit_bias"] = {_token_id(key): bias for key, bias in asked.logit_bias.items()}
    return SamplingParams(**{**given, **settled})


def _token_id(key: str) -> int:
    """JSON knows only texts as keys."""
    if not (key.isascii() and key.isdigit() and len(key) <= 10 and str(int(key)) == key):
        raise RequestError(
            f"logit_bias has the key {key[:64]!r}; its keys are token ids in digits.",
            field="logit_bias",
        )
    return int(key)


def _check_neutral(field: str, value: Any, neutral: Sequence[Any]) -> None:
    if value is None or any(_is_same(value, one) for one in neutral):
        return
    raise RequestError(
        f"{field}: this server cannot do that yet, and does not ignore what it cannot do. "
        "Leave it out.",
        field=field,
    )


def _is_same(value: Any, other: Any) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)
