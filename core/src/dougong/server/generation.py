"""From prompts to answers: admitted, merged into one stream, counted as they end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import TypeVar

from dougong.errors import CapacityError, RequestError
from dougong.messages import RequestOutput, SamplingParams
from dougong.server.serving import Serving

T = TypeVar("T")


async def generate_all(
    serving: Serving, route: str, prompts: Sequence[Sequence[int]], params: SamplingParams
) -> AsyncGenerator[tuple[int, RequestOutput]]:
    """Continue several prompts side by side.

    Args:
        serving: The engine and its server.
        route: For the metrics.
        prompts: Token ids; checked.
        params: For each of them.

    Yields:
        The prompt's index and everything so far of its answer, whenever there is more. Who leaves
        ends every request.

    Raises:
        RequestError: One of them can never be served.
        CapacityError: There is no room now, or the server stops.
        EngineDeadError: The engine is gone.
    """
    outcome = "aborted"
    try:
        with serving.admission.admit(len(prompts) * params.n):
            streams = [
                _counted(serving, serving.engine.generate(list(prompt), params))
                for prompt in prompts
            ]
            async with aclosing(merged(streams)) as outputs:
                async for indexed in outputs:
                    yield indexed
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


async def merged(streams: Sequence[AsyncGenerator[T]]) -> AsyncGenerator[tuple[int, T]]:
    """Items of all streams as they come, each with the index of its stream.

    The first error ends them all, and so does a consumer that leaves.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for item in only:
                yield 0, item
        return
    queue: asyncio.Queue[tuple[int, T] | Exception | None] = asyncio.Queue(len(streams))

    async def pump(index: int, stream: AsyncGenerator[T]) -> None:
        async with aclosing(stream):
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


async def _counted(
    serving: Serving, stream: AsyncIterator[RequestOutput]
) -> AsyncGenerator[RequestOutput]:
    """The same outputs; what they tell of time and tokens goes into the metrics."""
    metrics = serving.metrics
    num_known, last_s = 0, 0.0
    output = None
    try:
        async for output in stream:
            now_s, num_tokens = time.monotonic(), sum(len(o.token_ids) for o in output.outputs)
            if num_known:
                num_new = max((num_tokens - num_known) / len(output.outputs), 1.0)
                metrics.between_tokens.observe((now_s - last_s) / num_new)
            elif output.metrics.first_token_s is not None:
                arrival_s = output.metrics.arrival_s
                metrics.first_token.observe(output.metrics.first_token_s - arrival_s)
            metrics.generated_tokens.inc(num_tokens - num_known)
            num_known, last_s = num_tokens, now_s
            yield output
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
        if output is not None:
            metrics.prompt_tokens.inc(len(output.prompt_token_ids))
            metrics.cached_tokens.inc(output.num_cached_tokens)
            if output.metrics.finished_s is not None:
                metrics.duration.observe(output.metrics.finished_s - output.metrics.arrival_s)
