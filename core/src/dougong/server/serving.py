"""One served engine and everything its routes share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from prometheus_client import generate_latest
from starlette.requests import Request

from dougong.engine.prompts import check_token_ids
from dougong.errors import DougongError, RequestError
from dougong.server.admission import Admission
from dougong.server.engine_watch import EngineWatch
from dougong.server.metrics import EngineCollector, RequestMetrics
from dougong.server.model_names import ModelNames, ServedModel
from dougong.server.openai.tool_formats import ToolSupport
from dougong.server.recent_errors import RecentErrors
from dougong.server.served_engine import ServedEngine
from dougong.server.settings import ServerSettings
from dougong.server.status_history import StatusHistory
from dougong.server.status_reader import StatusReader
from dougong.server.text_work import TextWork

_STATS_TIMEOUT_S = 1.0


class Serving:
    """What a route needs; made and used in the event loop's thread.

    Args:
        engine: Alive.
        settings: The operator's.

    Attributes:
        max_model_len: Prompt and answer of one request together, in tokens.
    """

    def __init__(self, engine: ServedEngine, settings: ServerSettings) -> None:
        self.engine = engine
        self.settings = settings
        self.report = engine.report
        self.max_model_len: int = self.report.limits.max_len
        self.text = TextWork(engine.tokenizer, self.report.vocab_size)
        self.tools = ToolSupport(engine.tokenizer.chat_template, settings.tool_call_parser)
        self.models = ModelNames(settings.model_names, engine.loras)
        self.admission = Admission(settings.max_live_sequences)
        self.watch = EngineWatch(engine)
        self.metrics = RequestMetrics(engine.metrics)
        self.recent_errors = RecentErrors()
        self.history = StatusHistory()
        self.status = StatusReader(engine, self.metrics, self.watch, self.history)
        self._collector = EngineCollector()
        engine.metrics.register(self._collector)

    def check_model(self, name: str | None) -> ServedModel:
        """What answers a request for this name.

        Raises:
            HttpRequestError: There is no such model (404).
        """
        return self.models.check(name)

    def check_prompt(self, field: str, token_ids: Sequence[int]) -> None:
        """Refuse a prompt that can never be served, before the event loop walks through it.

        Raises:
            RequestError: It is too long, or has an id outside the vocabulary.
        """
        self.check_length(field, len(token_ids))
        check_token_ids(field, token_ids, self.report.vocab_size)

    def check_length(self, field: str, num_tokens: int) -> None:
        """Refuse a prompt of so many tokens.

        Raises:
            RequestError: It is too long.
        """
        most = self.report.limits.max_prompt_len
        if num_tokens > most:
            raise RequestError(
                f"{field} has {num_tokens} tokens and can have at most {most}: prompt and "
                f"answer together have room for {self.max_model_len}. Shorten it.",
                field=field,
            )

    async def exposition(self) -> bytes:
        """All metrics in Prometheus' text format; never waits long for a busy engine."""
        with contextlib.suppress(TimeoutError, DougongError):  # then the last answer is shown
            self._collector.stats = await asyncio.wait_for(self.engine.stats(), _STATS_TIMEOUT_S)
        self._collector.is_alive = self.watch.death is None
        self._collector.age_s = self.watch.answer_age_s
        return generate_latest(self.engine.metrics)

    def close(self) -> None:
        """End what was begun here; the engine is its owner's."""
        self.text.close()


def serving_of(request: Request) -> Serving:
    """The one that this application was made for."""
    found = request.app.state.serving
    assert isinstance(found, Serving)
    return found
