"""One client's request: a prompt and its sequences, from tokens in to text out."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dougong.engine.prompts import TokenizedPrompt
from dougong.engine.sequence_text import SequenceText
from dougong.engine.tokenizer import Tokenizer
from dougong.errors import DougongError, PluginError, RequestError
from dougong.messages import (
    CompletionOutput,
    LoRARef,
    Request,
    RequestDelta,
    RequestMetrics,
    RequestOutput,
    SamplingParams,
    TokenLogprobs,
)

_SEEDS = 2**63


class RequestState:
    """A request on the side that knows text.

    Args:
        request_id: As the client named it, or made by the front end.
        engine_name: What the ids of its sequences begin with; no other request ever has it.
        prompt: What to continue.
        params: How.
        tokenizer: Of the model.

    Attributes:
        request_id: As given.
        engine_ids: Ids of its sequences in the engine.
        error: Why it could not be served; it is over then.
    """

    __slots__ = (
        "_by_engine_id",
        "_live",
        "_metrics",
        "_num_cached_tokens",
        "_num_open",
        "_prompt",
        "_prompt_logprobs",
        "_sequences",
        "_wants_prompt_logprobs",
        "engine_ids",
        "error",
        "request_id",
    )

    def __init__(
        self,
        request_id: str,
        engine_name: str,
        prompt: TokenizedPrompt,
        params: SamplingParams,
        tokenizer: Tokenizer,
    ) -> None:
        self.request_id = request_id
        self.error: DougongError | None = None
        self._prompt = prompt
        self._sequences = [
            SequenceText(
                index,
                params,
                tokenizer.detokenizer(skip_special_tokens=params.skip_special_tokens),
                tokenizer.stop_token_ids,
            )
            for index in range(params.n)
        ]
        self.engine_ids = _engine_ids(engine_name, params.n)
        self._by_engine_id = dict(zip(self.engine_ids, self._sequences, strict=True))
        self._num_open = params.n
        self._num_cached_tokens = 0
        self._wants_prompt_logprobs = params.prompt_logprobs is not None
        self._prompt_logprobs: list[TokenLogprobs | None] | None = None
        self._metrics = RequestMetrics(time.monotonic())
        self._live = RequestOutput(
            request_id=request_id,
            prompt=prompt.text,
            prompt_token_ids=prompt.token_ids,
            outputs=[sequence.output for sequence in self._sequences],
            metrics=self._metrics,
        )

    @property
    def is_finished(self) -> bool:
        """Whether every sequence has ended."""
        return self._num_open == 0

    @property
    def arrival_s(self) -> float:
        """On ``time.monotonic()``."""
        return self._metrics.arrival_s

    def apply(self, delta: RequestDelta) -> bool:
        """Add what a step brought to one sequence.

        Returns:
            Whether the engine must be told to end that sequence: its text has ended.

        Raises:
            PluginError: What was asked for of the prompt is not there.
        """
        sequence = self._by_engine_id[delta.request_id]
        if sequence.output.finish_reason is not None:
            return False  # computed before the engine heard of the end
        metrics = self._metrics
        if metrics.first_token_s is None:
            metrics.first_token_s = time.monotonic()
            self._num_cached_tokens = delta.num_cached_tokens
        if delta.error is not None:
            self.error = error_of(delta, delta.error)
        if self._wants_prompt_logprobs and delta.error is None:
            self._take_prompt_logprobs(delta)
        must_abort = sequence.apply(delta)
        if sequence.output.finish_reason is not None:
            self._num_open -= 1
            if not self._num_open:
                metrics.finished_s = time.monotonic()
        return must_abort

    def _take_prompt_logprobs(self, delta: RequestDelta) -> None:
        """From the first delta of the first sequence, which alone is asked for them."""
        if self._prompt_logprobs is not None or delta.request_id != self.engine_ids[0]:
            return
        wanted = len(self._prompt.token_ids) - 1
        if len(delta.prompt_logprobs) != wanted:
            raise PluginError(
                f"The platform's worker gave {len(delta.prompt_logprobs)} log-probabilities of a "
                f"prompt of {wanted + 1} tokens, and {wanted} were due, so the request was ended; "
                "others go on. Ask for no prompt_logprobs on this platform."
            )
        self._prompt_logprobs = [None, *delta.prompt_logprobs]

    def abort(self) -> list[str]:
        """End what is still running; the engine ids to end there."""
        ids = []
        for engine_id, sequence in self._by_engine_id.items():
            if not sequence.is_finished:
                sequence.abort()
                ids.append(engine_id)
        if ids:
            self._num_open = 0
            self._metrics.finished_s = time.monotonic()
        return ids

    def fail(self, error: DougongError) -> list[str]:
        """End it with an error of this side; the engine ids to end there."""
        self.error = error
        return self.abort()

    def snapshot(self) -> RequestOutput:
        """Everything so far; later steps do not change it."""
        metrics = self._metrics
        return RequestOutput(
            request_id=self.request_id,
            prompt=self._prompt.text,
            prompt_token_ids=self._prompt.token_ids,
            outputs=[_copy(sequence.output) for sequence in self._sequences],
            metrics=RequestMetrics(metrics.arrival_s, metrics.first_token_s, metrics.finished_s),
            is_finished=self.is_finished,
            num_cached_tokens=self._num_cached_tokens,
            prompt_logprobs=self._prompt_logprobs,
        )

    def live(self) -> RequestOutput:
        """Everything so far, in one object that every later step changes.

        It costs the same however long the answer is, where `snapshot` copies all of it.
        """
        live = self._live
        live.is_finished = self._num_open == 0
        live.num_cached_tokens = self._num_cached_tokens
        live.prompt_logprobs = self._prompt_logprobs
        return live


@dataclass(frozen=True, slots=True)
class EngineRequestMaker:
    """Turns a client's request into the engine's: one per sequence, forks of the first.

    Attributes:
        eos_token_ids: Ids that end a text.
        draws: Where seeds come from that the client did not give.
    """

    eos_token_ids: frozenset[int]
    draws: random.Random

    def make(
        self,
        state: RequestState,
        prompt: TokenizedPrompt,
        params: SamplingParams,
        priority: int,
        lora: LoRARef | None = None,
    ) -> Iterator[Request]:
        """The engine's requests; sequence ``i`` draws with ``seed + i``."""
        first_id = state.engine_ids[0]
        seed = params.seed
        if seed is None and not params.is_greedy:
            seed = self.draws.randrange(_SEEDS)
        for index, engine_id in enumerate(state.engine_ids):
            own_seed = None if seed is None else (seed + index) % _SEEDS
            yield Request(
                request_id=engine_id,
                prompt_token_ids=prompt.token_ids,
                sampling_params=_for_one(params, own_seed, is_first=index == 0),
                eos_token_ids=self.eos_token_ids,
                priority=priority,
                arrival_s=state.arrival_s,
                fork_of=first_id if index else None,
                lora=lora,
            )


def _engine_ids(name: str, n: int) -> tuple[str, ...]:
    """Ids of a request's sequences: its own when there is one, else numbered."""
    return (name,) if n == 1 else tuple(f"{name}#{index}" for index in range(n))


def _for_one(params: SamplingParams, seed: int | None, *, is_first: bool) -> SamplingParams:
    """Parameters of one sequence; the prompt is the same for all, so the first one reports it."""
    prompt_logprobs = params.prompt_logprobs if is_first else None
    if (params.n, params.seed, params.prompt_logprobs) == (1, seed, prompt_logprobs):
        return params
    return replace(params, n=1, seed=seed, prompt_logprobs=prompt_logprobs)


def error_of(delta: RequestDelta, message: str) -> DougongError:
    """The error of a request that was not served."""
    if delta.is_internal:
        return DougongError(message)
    return RequestError(message, field=delta.error_field)


def _copy(output: CompletionOutput) -> CompletionOutput:
    """Field by field, which takes a tenth of what ``replace`` does."""
    return CompletionOutput(
        index=output.index,
        text=output.text,
        token_ids=output.token_ids[:],
        finish_reason=output.finish_reason,
        stop_reason=output.stop_reason,
        logprobs=None if output.logprobs is None else output.logprobs[:],
    )
