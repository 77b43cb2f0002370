"""Sends a workload to a server and keeps what came back."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dougong.cli.bench_serving.answer import Answer, read_answer
from dougong.cli.bench_serving.workload import ServeWorkload
from dougong.cli.http_exchange import Connections, Exchange, Target

_MOST_OPENED_FIRST = 64


@dataclass(frozen=True, slots=True)
class ServeRun:
    """What a measurement saw.

    Attributes:
        begun_s: When the first request was due, of ``perf_counter``.
        answers: One per measured request, in the order in which they were due.
        client_cpu_s: Processor time that this process used meanwhile: what it takes from a server
            on the same machine.
    """

    begun_s: float
    answers: list[Answer]
    client_cpu_s: float

    @property
    def seconds(self) -> float:
        """From the first request to the end of the last answer."""
        return max(answer.ended_s for answer in self.answers) - self.begun_s


async def run_load(
    target: Target, workload: ServeWorkload, advance: Callable[[], None] = lambda: None
) -> ServeRun:
    """Warm up, then measure.

    Args:
        target: The server.
        workload: What to ask of it.
        advance: Called as each measured request ends.
    """
    bodies = workload.bodies()
    warm_up, measured = bodies[: workload.num_warm_up], bodies[workload.num_warm_up :]
    connections = Connections(target)
    try:
        for body in warm_up:
            await connections.ask("POST", workload.path, body)
        at_once = min(workload.concurrency or len(measured), _MOST_OPENED_FIRST)
        with contextlib.suppress(OSError):  # each request says so itself
            await connections.open(at_once)
        with _no_collection():
            return await _measured(connections, workload, measured, advance)
    finally:
        connections.close()


async def _measured(
    connections: Connections,
    workload: ServeWorkload,
    bodies: Sequence[bytes],
    advance: Callable[[], None],
) -> ServeRun:
    places = asyncio.Semaphore(workload.concurrency or len(bodies))

    async def one(body: bytes, due_s: float) -> Exchange:
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        async with places:
            exchange = await connections.ask("POST", workload.path, body)
        advance()
        return exchange

    cpu_s, begun_s = time.process_time(), time.perf_counter()
    due = [begun_s + arrival_s for arrival_s in workload.arrivals_s()]
    exchanges = await asyncio.gather(*map(one, bodies, due))
    cpu_s = time.process_time() - cpu_s
    answers = [read_answer(exchange, due_s) for exchange, due_s in zip(exchanges, due, strict=True)]
    return ServeRun(begun_s, answers, cpu_s)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """A pause of this process's own would look like one of the server's."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
