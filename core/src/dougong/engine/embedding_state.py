"""One client's text that becomes a vector."""

from __future__ import annotations

import time

from dougong.engine.prompts import TokenizedPrompt
from dougong.engine.request_state import error_of
from dougong.errors import DougongError, PluginError
from dougong.messages import (
    EmbeddingOutput,
    PoolingParams,
    Request,
    RequestDelta,
    RequestMetrics,
    SamplingParams,
)

_NOTHING_SAMPLED = SamplingParams(temperature=0.0, max_tokens=1)


class EmbeddingState:
    """A request for a vector on the side that knows text; see `LiveRequest`.

    Args:
        request_id: As the client named it, or made by the front end.
        engine_name: Its id in the engine; no other request ever has it.
        prompt: The text.
    """

    __slots__ = (
        "_metrics",
        "_output",
        "_prompt",
        "engine_ids",
        "error",
        "is_finished",
        "request_id",
    )

    def __init__(self, request_id: str, engine_name: str, prompt: TokenizedPrompt) -> None:
        self.request_id = request_id
        self.engine_ids: tuple[str, ...] = (engine_name,)
        self.error: DougongError | None = None
        self.is_finished = False
        self._prompt = prompt
        self._metrics = RequestMetrics(time.monotonic())
        self._output: EmbeddingOutput | None = None

    def request(self, params: PoolingParams, priority: int) -> Request:
        """As the engine receives it."""
        return Request(
            request_id=self.engine_ids[0],
            prompt_token_ids=self._prompt.token_ids,
            sampling_params=_NOTHING_SAMPLED,
            priority=priority,
            arrival_s=self._metrics.arrival_s,
            pooling_params=params,
        )

    def apply(self, delta: RequestDelta) -> bool:
        """See `LiveRequest.apply`.

        Raises:
            PluginError: There is no vector.
        """
        now_s = time.monotonic()
        self.is_finished = True
        self._metrics.first_token_s = self._metrics.finished_s = now_s
        if delta.error is not None:
            self.error = error_of(delta, delta.error)
        elif delta.pooled is None:
            self.is_finished = False  # so that the engine is told to end it
            raise PluginError(
                "The platform's worker drew a token for a request that wanted a vector, so the "
                "request was ended; others go on. Report this to its vendor."
            )
        else:
            self._output = EmbeddingOutput(
                request_id=self.request_id,
                prompt=self._prompt.text,
                prompt_token_ids=self._prompt.token_ids,
                embedding=delta.pooled,
                num_cached_tokens=delta.num_cached_tokens,
                metrics=self._metrics,
            )
        return False

    def abort(self) -> list[str]:
        """See `LiveRequest.abort`."""
        if self.is_finished:
            return []
        self.is_finished = True
        self._metrics.finished_s = time.monotonic()
        return list(self.engine_ids)

    def fail(self, error: DougongError) -> list[str]:
        """See `LiveRequest.fail`."""
        self.error = error
        return self.abort()

    def output(self) -> EmbeddingOutput:
        """The vector, once there is one.

        Raises:
            DougongError: It could not be made.
        """
        if self.error is not None:
            raise self.error
        assert self._output is not None, "asked for when it has ended"
        return self._output
