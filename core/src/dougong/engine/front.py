"""The side that knows text: clients' requests in, the engine's requests out, and back."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from dougong.engine.adapter_names import AdapterNames
from dougong.engine.embedding_checks import (
    check_makes_text,
    check_makes_vectors,
    check_pooling,
    prompt_of,
)
from dougong.engine.embedding_state import EmbeddingState
from dougong.engine.grammar_vocabulary import check_vocabulary, vocabulary_of
from dougong.engine.live_request import LiveRequest
from dougong.engine.prompts import (
    Message,
    Prompt,
    TokenizedPrompt,
    check_priority,
    check_request_id,
    check_token_ids,
    tokenize,
)
from dougong.engine.request_state import EngineRequestMaker, RequestState
from dougong.engine.sampling_tokens import SamplingTokens
from dougong.engine.start_report import StartReport
from dougong.engine.tokenizer import Tokenizer
from dougong.errors import DougongError, RequestError
from dougong.grammar import GrammarTrial
from dougong.log import get_logger
from dougong.messages import PoolingParams, Request, RequestDelta, SamplingParams

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_logger = get_logger(__name__)


class FrontEnd:
    """Keeps every live request's text; not thread-safe, and does no input or output.

    The engine knows a request by an id that is made here and never used twice, so what was computed
    for one that has ended cannot reach a later one of the same name.

    Args:
        tokenizer: Of the model.
        report: Of the engine's start.
    """

    def __init__(self, tokenizer: Tokenizer, report: StartReport) -> None:
        self.tokenizer = tokenizer
        self._plan = report.plan
        self._vocab_size = report.vocab_size
        self._limits = report.limits
        self.adapters = AdapterNames(report)
        self._takes_masks = report.takes_grammar_masks
        self._trial = GrammarTrial(lambda: vocabulary_of(tokenizer, report.vocab_size))
        self._pooling = report.pooling
        self._states: dict[str, LiveRequest] = {}
        self._by_engine_id: dict[str, LiveRequest] = {}
        self._numbers = itertools.count()
        eos_token_ids = _inside(tokenizer.stop_token_ids, report.vocab_size)
        self._sampling = SamplingTokens(tokenizer, report.vocab_size, eos_token_ids)
        self._maker = EngineRequestMaker(eos_token_ids, random.Random(report.seed))

    @cached_property
    def metrics(self) -> CollectorRegistry:
        """Of this engine alone, wherever it runs."""
        from dougong.engine.fallback_metric import metrics_of  # takes as long as a whole step

        return metrics_of(self._plan)

    def close(self) -> None:
        """Free what it holds beside memory; callable twice."""
        self._trial.close()

    def num_requests(self) -> int:
        """Requests that have not ended."""
        return len(self._states)

    def tokenize(self, prompt: Prompt) -> TokenizedPrompt:
        """A prompt as the model reads it, checked against the vocabulary.

        Raises:
            RequestError: An id is outside the vocabulary.
        """
        tokenized = tokenize(prompt, self.tokenizer)
        check_token_ids("prompt", tokenized.token_ids, self._vocab_size)
        return tokenized

    def tokenize_chat(self, messages: Sequence[Message]) -> TokenizedPrompt:
        """A conversation as the model reads it, up to the opening of the assistant's turn.

        Raises:
            RequestError: The model has no chat template, it refused the messages, or an id is
                outside the vocabulary.
        """
        text = self.tokenizer.render_chat(messages)
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        check_token_ids("messages", ids, self._vocab_size)
        return TokenizedPrompt(text, tuple(ids))

    def add(
        self,
        prompt: TokenizedPrompt,
        params: SamplingParams,
        *,
        request_id: str | None = None,
        priority: int = 0,
        lora: str | None = None,
    ) -> tuple[RequestState, list[Request]]:
        """Take in a request; hand the second part to the engine.

        Raises:
            RequestError: It can never be served; nothing was taken in.
        """
        check_makes_text(self._pooling)
        check_priority(priority)
        ref = None if lora is None else self.adapters.find(lora)
        request_id, engine_name = self._names(request_id)
        params = self._sampling.resolve(params)
        self.check_structured(params)
        state = RequestState(request_id, engine_name, prompt, params, self.tokenizer)
        requests = list(self._maker.make(state, prompt, params, priority, ref))
        self._limits.check_request(requests[0])
        self._states[request_id] = state
        self._by_engine_id.update(dict.fromkeys(state.engine_ids, state))
        return state, requests

    def tokenize_for_vector(self, text: Prompt, prompt_name: str | None) -> TokenizedPrompt:
        """A text as the model reads it, after the checkpoint's prompt of that name.

        Raises:
            RequestError: There is no such prompt, or the text is token ids, which nothing can be
                put before; or an id is outside the vocabulary.
        """
        before = prompt_of(prompt_name, check_makes_vectors(self._pooling))
        if isinstance(text, str):
            return self.tokenize(before + text)
        if prompt_name is not None:
            raise RequestError(
                "prompt_name goes with texts; token ids are read as they are.", field="prompt_name"
            )
        return self.tokenize(text)

    def add_embedding(
        self,
        prompt: TokenizedPrompt,
        params: PoolingParams,
        *,
        request_id: str | None = None,
        priority: int = 0,
    ) -> tuple[EmbeddingState, Request]:
        """Take in a text that becomes a vector; hand the second part to the engine.

        Raises:
            RequestError: It can never be served; nothing was taken in.
        """
        check_pooling(params, check_makes_vectors(self._pooling))
        check_priority(priority)
        request_id, engine_name = self._names(request_id)
        state = EmbeddingState(request_id, engine_name, prompt)
        request = state.request(params, priority)
        self._limits.check_request(request)
        self._states[request_id] = self._by_engine_id[engine_name] = state
        return state, request

    def apply(self, deltas: Iterable[RequestDelta]) -> tuple[list[LiveRequest], list[str]]:
        """Take in what a step produced.

        Returns:
            The requests that changed, each once, and the engine's requests to end because their
            text has ended or cannot be made.
        """
        changed: dict[str, LiveRequest] = {}
        to_abort: list[str] = []
        by_engine_id = self._by_engine_id
        for delta in deltas:
            state = by_engine_id.get(delta.request_id)
            if state is None:
                continue  # aborted, or ended by a stop string, before this step was known
            try:
                if state.apply(delta):
                    to_abort.append(delta.request_id)
            except DougongError as exc:
                to_abort += state.fail(exc)
            except Exception as exc:  # noqa: BLE001 - the tokenizer's; it must end no other request
                to_abort += state.fail(_no_text(exc))
            changed[state.request_id] = state
            if state.is_finished:
                self._forget(state)
        return list(changed.values()), to_abort

    def abort(self, state: LiveRequest) -> list[str]:
        """End a request; the engine's requests to end. Nothing where it has ended already."""
        if self._states.get(state.request_id) is not state:
            return []
        self._forget(state)
        return state.abort()

    def _forget(self, state: LiveRequest) -> None:
        del self._states[state.request_id]
        for engine_id in state.engine_ids:
            del self._by_engine_id[engine_id]

    def _names(self, request_id: str | None) -> tuple[str, str]:
        """The client's name of a request, or one that is made, and the engine's."""
        number = next(self._numbers)
        if request_id is None:
            request_id = self._unused_id(number)
        else:
            self._check_id(request_id)
        return request_id, f"{request_id}@{number}"

    def _check_id(self, request_id: str) -> None:
        check_request_id(request_id)
        if request_id in self._states:
            raise RequestError(
                f"request_id={request_id!r} is in use by a request that has not ended. "
                "Use another one.",
                field="request_id",
            )

    def check_structured(self, params: SamplingParams) -> None:
        """Refuse structured output that cannot be had; thread-safe, and may take seconds. `add`
        does the same, at once for what was found good here.

        Raises:
            RequestError: Names the field.
        """
        if params.structured_output is None:
            return
        if not self._takes_masks:
            raise RequestError(
                "structured_output needs a worker that obeys a grammar's masks, and this "
                "platform's does not (Worker.takes_grammar_masks). Leave the field out, or choose "
                "another platform.",
                field="structured_output",
            )
        check_vocabulary(self.tokenizer, self._vocab_size)
        self._trial.check(params.structured_output)

    def _unused_id(self, number: int) -> str:
        while (request_id := f"request-{number}") in self._states:  # a client chose this very name
            number = next(self._numbers)
        return request_id


def _inside(token_ids: frozenset[int], vocab_size: int) -> frozenset[int]:
    """Ids that the model can emit; the others would lie outside its logits."""
    inside = frozenset(one for one in token_ids if 0 <= one < vocab_size)
    if outside := sorted(token_ids - inside):
        _logger.warning(
            "the tokenizer's end-of-text ids %s are outside the model's vocabulary of %d; ignored",
            outside,
            vocab_size,
        )
    return inside


def _no_text(cause: Exception) -> DougongError:
    error = DougongError(
        f"The tokenizer could not turn this answer's tokens into text "
        f"({type(cause).__name__}: {cause}), so the request was ended; others go on. "
        "Check the checkpoint's tokenizer files."
    )
    error.__cause__ = cause
    return error
