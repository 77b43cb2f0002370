"""Fills the history: reads the server's counters and asks the engine, once a second."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress

from dougong.engine.core import EngineStats
from dougong.errors import DougongError
from dougong.server.engine_watch import EngineWatch
from dougong.server.latency import RecentLatency
from dougong.server.metrics import RequestMetrics
from dougong.server.served_engine import ServedEngine
from dougong.server.status_history import Sample, StatusHistory

PERIOD_S = 1.0
_ANSWER_S = 0.25  # an engine between short steps needs less; a long step is not waited for
_LATENCY_TAKES = 10


class StatusReader:
    """One question is open with the engine at most: a long step gathers none.

    Args:
        engine: Alive.
        metrics: Of the server.
        watch: Of the engine.
        history: Gets the samples.

    Attributes:
        stats: What the engine last told; ``None``: nothing yet.
    """

    def __init__(
        self,
        engine: ServedEngine,
        metrics: RequestMetrics,
        watch: EngineWatch,
        history: StatusHistory,
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._watch = watch
        self._history = history
        self._question: asyncio.Task[EngineStats] | None = None
        self._read_s = time.monotonic()
        self._num_tokens = metrics.num_generated()
        self._ended = Counter(metrics.num_ended())
        self._first_token = RecentLatency(_LATENCY_TAKES)
        self._between_tokens = RecentLatency(_LATENCY_TAKES)
        self.stats: EngineStats | None = None

    async def run(self) -> None:
        """Read until cancelled."""
        try:
            while True:
                await self.read()
                await asyncio.sleep(PERIOD_S - time.time() % PERIOD_S)
        finally:
            if self._question is not None:
                self._question.cancel()

    async def read(self) -> None:
        """Take one sample."""
        is_answered = await self._ask()
        now_s = time.monotonic()
        elapsed_s, self._read_s = max(now_s - self._read_s, 1e-3), now_s
        num_tokens, ended = self._metrics.num_generated(), Counter(self._metrics.num_ended())
        num_new, self._num_tokens = num_tokens - self._num_tokens, num_tokens
        fresh, self._ended = ended - self._ended, ended
        self._first_token.add(self._metrics.first_token.take())
        self._between_tokens.add(self._metrics.between_tokens.take())
        first_p50, first_p95 = self._first_token.quantiles(0.5, 0.95)
        between_p50, between_p95 = self._between_tokens.quantiles(0.5, 0.95)
        running, waiting, held, cached = self._of_the_engine()
        self._history.add(
            Sample(
                time=time.time(),
                running=running,
                waiting=waiting,
                kv_held=held,
                kv_cached=cached,
                tokens_per_s=num_new / elapsed_s,
                first_token_p50=first_p50,
                first_token_p95=first_p95,
                between_tokens_p50=between_p50,
                between_tokens_p95=between_p95,
                finished=fresh["finished"],
                refused=fresh["refused"],
                aborted=fresh["aborted"],
                failed=fresh["failed"],
                silence_s=0.0 if is_answered else self._watch.answer_age_s,
            )
        )

    async def _ask(self) -> bool:
        """Whether the engine answered; it may have been asked before."""
        if self._question is None:
            self._question = asyncio.create_task(self._engine.stats())
        await asyncio.wait({self._question}, timeout=_ANSWER_S)
        if not self._question.done():
            return False
        answered, self._question = self._question, None
        with suppress(DougongError):  # it is dead, which the watch tells
            self.stats = answered.result()
            return True
        return False

    def _of_the_engine(self) -> tuple[int | None, int | None, float | None, float | None]:
        if self.stats is None or self._watch.death is not None:
            return None, None, None, None
        scheduler = self.stats.scheduler
        cache = scheduler.kv_cache
        running, waiting = scheduler.num_running, scheduler.num_waiting
        if not cache.num_usable_blocks:  # a model without a KV cache
            return running, waiting, None, None
        total = cache.num_usable_blocks
        return running, waiting, cache.num_held_blocks / total, cache.num_cached_blocks / total
