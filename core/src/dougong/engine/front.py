"""The side that knows text: clients' requests in, the engine's requests out, and back."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence

from dougong.engine.prompts import (
    Message,
    Prompt,
    TokenizedPrompt,
    check_sampling_params,
    check_token_ids,
    tokenize,
)
from dougong.engine.request_state import EngineRequestMaker, RequestState, engine_ids
from dougong.engine.start_report import StartReport
from dougong.engine.tokenizer import Tokenizer
from dougong.errors import RequestError
from dougong.messages import Request, RequestDelta, SamplingParams


class FrontEnd:
    """Keeps every live request's text; not thread-safe, and does no input or output.

    Args:
        tokenizer: Of the model.
        report: Of the engine's start.
    """

    def __init__(self, tokenizer: Tokenizer, report: StartReport) -> None:
        self.tokenizer = tokenizer
        self._vocab_size = report.vocab_size
        self._limits = report.limits
        self._states: dict[str, RequestState] = {}
        self._by_engine_id: dict[str, RequestState] = {}
        self._numbers = itertools.count()
        self._maker = EngineRequestMaker(tokenizer.stop_token_ids, random.Random(report.seed))

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
            RequestError: The model has no chat template, or it refused the messages.
        """
        text = self.tokenizer.render_chat(messages)
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return TokenizedPrompt(text, tuple(ids))

    def add(
        self,
        prompt: TokenizedPrompt,
        params: SamplingParams,
        *,
        request_id: str | None = None,
        priority: int = 0,
    ) -> tuple[RequestState, list[Request]]:
        """Take in a request; hand the second part to the engine.

        Raises:
            RequestError: It can never be served; nothing was taken in.
        """
        request_id = request_id or self._new_id()
        if request_id in self._states or not self._by_engine_id.keys().isdisjoint(
            engine_ids(request_id, params.n)
        ):
            raise RequestError(
                f"request_id={request_id!r} is in use by a request that has not ended. "
                "Use another one.",
                field="request_id",
            )
        check_sampling_params(params, self._vocab_size)
        state = RequestState(request_id, prompt, params, self.tokenizer)
        requests = list(self._maker.make(state, prompt, params, priority))
        self._limits.check_request(requests[0])
        self._states[request_id] = state
        self._by_engine_id.update(dict.fromkeys(state.engine_ids, state))
        return state, requests

    def apply(self, deltas: Iterable[RequestDelta]) -> tuple[list[RequestState], list[str]]:
        """Take in what a step produced.

        Returns:
            The requests that changed, each once, and the engine's requests to end because their
            text has ended.
        """
        changed: dict[str, RequestState] = {}
        to_abort: list[str] = []
        by_engine_id = self._by_engine_id
        for delta in deltas:
            state = by_engine_id.get(delta.request_id)
            if state is None:
                continue  # aborted, or ended by a stop string, before this step was known
            if state.apply(delta):
                to_abort.append(delta.request_id)
            changed[state.request_id] = state
            if state.is_finished:
                self._forget(state)
        return list(changed.values()), to_abort

    def abort(self, request_id: str) -> list[str]:
        """End a request; the engine's requests to end. Nothing where it has ended already."""
        state = self._states.get(request_id)
        if state is None:
            return []
        self._forget(state)
        return state.abort()

    def abort_all(self) -> list[str]:
        """End every request; the engine's requests to end."""
        return [
            engine_id for request_id in list(self._states) for engine_id in self.abort(request_id)
        ]

    def _forget(self, state: RequestState) -> None:
        del self._states[state.request_id]
        for engine_id in state.engine_ids:
            del self._by_engine_id[engine_id]

    def _new_id(self) -> str:
        while (request_id := f"request-{next(self._numbers)}") in self._states:
            pass
        return request_id
