"""The two messages between the side that decides and the side that computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dougong.messages.pooling import PoolingParams
from dougong.messages.request import SamplingParams


@dataclass(frozen=True, slots=True)
class NewRequestData:
    """A request the worker has not seen, or has dropped when it was preempted.

    Attributes:
        request_id: Unique among live requests.
        token_ids: Every token known so far: the prompt, then what was generated before a
            preemption.
        num_prompt_tokens: How many of ``token_ids`` are the prompt.
        sampling_params: With ``n == 1`` and ``seed`` set whenever ``temperature > 0``.
        stop_token_ids: eos and stop ids together; suppressed while below ``min_tokens``.
        block_ids: One list per KV cache group, in position order.
        num_computed_tokens: Leading tokens whose KV is already in those blocks.
        lora_slot: Slot of the adapter it uses; ``-1``: none, as in a device's tensor of slots.
        pooling_params: It wants one vector, and nothing is sampled; ``None``: it is sampled.
    """

    request_id: str
    token_ids: Sequence[int]
    num_prompt_tokens: int
    sampling_params: SamplingParams
    stop_token_ids: frozenset[int]
    block_ids: tuple[list[int], ...]
    num_computed_tokens: int
    lora_slot: int = -1
    pooling_params: PoolingParams | None = None


@dataclass(frozen=True, slots=True)
class CachedRequestData:
    """What changed for requests the worker already holds; parallel lists, one entry per request.

    Attributes:
        req_ids: Requests scheduled in this step that were sent before.
        new_block_ids: Blocks appended since the last step, one list per KV cache group; ``None``
            for the common case of no new block.
    """

    req_ids: list[str] = field(default_factory=list)
    new_block_ids: list[tuple[list[int], ...] | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """One step's work.

    A worker handles the fields in this order: drop ``finished_req_ids`` and ``preempted_req_ids``,
    add ``scheduled_new_reqs``, extend ``scheduled_cached_reqs``, then compute
    ``num_scheduled_tokens[id]`` tokens of each request, from its first uncomputed one.
    A request is sampled in the step that computes its last known token.

    Attributes:
        step_id: Counts up from 0; a worker refuses a step out of order.
        scheduled_new_reqs: See `NewRequestData`.
        scheduled_cached_reqs: See `CachedRequestData`.
        num_scheduled_tokens: Tokens to compute per scheduled request, at least 1 each.
        total_num_scheduled_tokens: Their sum.
        finished_req_ids: Requests that ended or were aborted since the last step.
        preempted_req_ids: Requests whose blocks were taken back; they may come again as new ones.
        draft_tokens: Reserved for speculative decoding; always ``None`` in contract 1.0.
    """

    step_id: int
    scheduled_new_reqs: list[NewRequestData]
    scheduled_cached_reqs: CachedRequestData
    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int
    finished_req_ids: list[str] = field(default_factory=list)
    preempted_req_ids: list[str] = field(default_factory=list)
    draft_tokens: None = None


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one position, natural logarithm, before temperature and truncation.

    Attributes:
        token_id: The drawn token, or the prompt's.
        logprob: Its log-probability.
        top: The most likely tokens, best first, as ``(token_id, logprob)``.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ModelRunnerOutput:
    """What one step produced; owned by the receiver, aliases no buffer of the worker.

    Attributes:
        step_id: Of the `SchedulerOutput` it answers.
        req_ids: Requests that were sampled: those whose last known token was computed.
        sampled_token_ids: Parallel to ``req_ids``; one token each in contract 1.0.
        logprobs: By request id, for requests that asked.
        prompt_logprobs: By request id, for requests that asked and have no output yet, sampled or
            not: one entry for each token of the prompt, from the second on, that follows a token
            computed in this step, in order.
        pooled: Vectors by request id, of requests that have ``pooling_params`` and whose last known
            token was computed; they are not among ``req_ids``. Values are those of float32.
    """

    step_id: int
    req_ids: list[str]
    sampled_token_ids: list[list[int]]
    logprobs: dict[str, TokenLogprobs] = field(default_factory=dict)
    prompt_logprobs: dict[str, list[TokenLogprobs]] = field(default_factory=dict)
    pooled: dict[str, list[float]] = field(default_factory=dict)
