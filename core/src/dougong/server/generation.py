"""From prompts to answers: admitted, merged into one stream, counted as they end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar

from dougong.errors import CapacityError, RequestError
from dougong.messages import RequestOutput, SamplingParams
from dougong.server.metrics import RequestMetrics
from dougong.server.serving import Serving

T = TypeVar("T")


async def generate_all(
    serving: Serving,
    route: str,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    lora: str | None = None,
) -> AsyncGenerator[tuple[int, RequestOutput]]:
    """Continue several prompts side by side.

    Args:
        serving: The engine and its server.
        route: For the metrics.
        prompts: Token ids; checked.
        params: For each of them.
        lora: The adapter they use.

    Yields:
        The prompt's index and everything so far of its answer, whenever there is more. Who leaves
        ends every request.

    Raises:
        RequestError: One of them can never be served.
        CapacityError: There is no room now, or the server stops.
        EngineDeadError: The engine is gone.
    """
    outcome = "aborted"
    counts = [AnswerCount(serving.metrics) for _ in prompts]
    try:
        with serving.admission.admit(len(prompts) * params.n):
            streams = [
                serving.engine.generate(list(prompt), params, lora=lora, is_live=True)
                for prompt in prompts
            ]
            async with aclosing(merged(streams)) as outputs:
                async for index, output in outputs:
                    counts[index].note(output)
                    yield index, output
        outcome = "finished"
    except (RequestError, CapacityError):
        outcome = "refused"
        raise
    except Exception as error:
        outcome = "failed"
        serving.watch.note(error)
        raise
    finally:
        serving.metrics.requests.labels(route, outcome).inc()
        for count in counts:
            count.close()


async def merged(streams: Sequence[AsyncIterator[T]]) -> AsyncGenerator[tuple[int, T]]:
    """Items of all streams as they come, each with the index of its stream.

    The first error ends them all, and so does a consumer that leaves.
    """
    if len(streams) == 1:
        async with _closing(streams[0]):
            async for item in streams[0]:
                yield 0, item
        return
    queue: asyncio.Queue[tuple[int, T] | Exception | None] = asyncio.Queue(len(streams))

    async def pump(index: int, stream: AsyncIterator[T]) -> None:
        async with _closing(stream):
            async for item in stream:
                await queue.put((index, item))

    async def pump_all() -> None:
        end = None
        try:
            async with asyncio.TaskGroup() as group:
                for index, stream in enumerate(streams):
                    group.create_task(pump(index, stream))
        except ExceptionGroup as errors:
            end = errors.exceptions[0]
        await queue.put(end)

    pumping = asyncio.create_task(pump_all())
    try:
        while (come := await queue.get()) is not None:
            if isinstance(come, Exception):
                raise come
            yield come
    finally:
        pumping.cancel()
        await asyncio.wait({pumping})


@asynccontextmanager
async def _closing(stream: AsyncIterator[T]) -> AsyncIterator[None]:
    """Close a generator at the block's end; another iterator has nothing to close."""
    try:
        yield
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


class AnswerCount:
    """Puts into the metrics what an answer tells of time and tokens.

    Args:
        metrics: The server's.
    """

    __slots__ = ("_last_s", "_metrics", "_num_known", "_output")

    def __init__(self, metrics: RequestMetrics) -> None:
        self._metrics = metrics
        self._num_known = 0
        self._last_s = 0.0
        self._output: RequestOutput | None = None

    def note(self, output: RequestOutput) -> None:
        """There is more of it."""
        now_s = time.monotonic()
        outputs, metrics = output.outputs, self._metrics
        num_tokens = sum([len(one.token_ids) for one in outputs])
        if num_new := num_tokens - self._num_known:
            if self._num_known:
                per_sequence = max(num_new / len(outputs), 1.0)
                metrics.between_tokens.observe((now_s - self._last_s) / per_sequence)
            elif output.metrics.first_token_s is not None:
                arrival_s = output.metrics.arrival_s
                metrics.first_token.observe(output.metrics.first_token_s - arrival_s)
            metrics.generated_tokens.inc(num_new)
            self._num_known, self._last_s = num_tokens, now_s
        self._output = output

    def close(self) -> None:
        """There is no more of it, whatever the reason."""
        output, metrics = self._output, self._metrics
        if output is None:
            return
        metrics.prompt_tokens.inc(len(output.prompt_token_ids))
        metrics.cached_tokens.inc(output.num_cached_tokens)
        if output.metrics.finished_s is not None:
            metrics.duration.observe(output.metrics.finished_s - output.metrics.arrival_s)
