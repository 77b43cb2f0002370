"""What comes back: per step to the front end, and per request to the client."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from dougong.messages.step import TokenLogprobs


class FinishReason(StrEnum):
    """Why a sequence ended."""

    STOP = "stop"  # eos, a stop id or a stop string
    LENGTH = "length"  # max_tokens or the model length
    ABORT = "abort"  # by the client, or because the engine stopped


class RequestDelta(msgspec.Struct, frozen=True, gc=False):
    """What one step added to one request, from the engine core to the front end.

    The one message made per request and step, so its cost counts: this form is made in a tenth of
    the time of a frozen dataclass, and encoded as it is where the engine is another process.

    Attributes:
        request_id: The engine's request (one sequence).
        new_token_ids: Tokens of this step, in order.
        finish_reason: Set in the last delta of a request.
        stop_token_id: The id that ended it, when an id did.
        logprobs: Parallel to ``new_token_ids`` where asked for, else empty.
        num_cached_tokens: Prompt tokens found in the prefix cache, in the first delta; else 0.
        prompt_logprobs: Of the prompt's tokens from the second on, in the first delta, where asked
            for.
        error: Why the request could not be served; only with ``ABORT``.
        error_field: The request's field at fault, where one is.
        is_internal: The error is no fault of the request.
        pooled: The vector that was asked for, in the only delta of such a request.
    """

    request_id: str
    new_token_ids: list[int]
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    logprobs: list[TokenLogprobs] = []  # msgspec gives each its own
    num_cached_tokens: int = 0
    error: str | None = None
    prompt_logprobs: list[TokenLogprobs] = []
    error_field: str | None = None
    is_internal: bool = False
    pooled: list[float] | None = None


@dataclass(slots=True)
class CompletionOutput:
    """One generated sequence.

    Attributes:
        index: 0 to ``n - 1``.
        text: Detokenized so far; never ends inside a character.
        token_ids: Generated so far, the stop token included.
        finish_reason: ``None`` while running.
        stop_reason: The stop string or stop id that ended it; ``None`` for eos.
        logprobs: One entry per token, where asked for.
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    logprobs: list[TokenLogprobs] | None = None


@dataclass(slots=True)
class RequestMetrics:
    """Times of one request, seconds on ``time.monotonic()``; ``None`` until they happened."""

    arrival_s: float
    first_token_s: float | None = None
    finished_s: float | None = None


@dataclass(slots=True)
class RequestOutput:
    """The answer to one prompt; in a stream, everything so far.

    Attributes:
        request_id: As the client named it, or made by the front end.
        prompt: Text of the prompt, ``None`` where only ids were given.
        prompt_token_ids: What the model read.
        outputs: One per sequence, by index.
        is_finished: Every sequence has ended.
        num_cached_tokens: Prompt tokens found in the prefix cache.
        metrics: Times.
        prompt_logprobs: One entry per token of the prompt, ``None`` for the first, which follows
            nothing; ``None`` as a whole where not asked for, or not there yet.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: list[CompletionOutput]
    metrics: RequestMetrics
    is_finished: bool = False
    num_cached_tokens: int = 0
    prompt_logprobs: list[TokenLogprobs | None] | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingOutput:
    """The vector of one text.

    Attributes:
        request_id: As the client named it, or made by the front end.
        prompt: The text, ``None`` where only ids were given.
        prompt_token_ids: What the model read.
        embedding: float32 values.
        num_cached_tokens: Tokens found in the prefix cache.
        metrics: Times; the first token's is that of the vector.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    embedding: list[float]
    num_cached_tokens: int
    metrics: RequestMetrics
