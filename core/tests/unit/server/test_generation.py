from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from dougong.errors import EngineDeadError
from dougong.messages import SamplingParams
from dougong.server.generation import generate_all, merged
from tests.unit.server.conftest import Served


async def numbers(first: int, count: int, ended: list[int]) -> AsyncGenerator[int]:
    try:
        for number in range(first, first + count):
            await asyncio.sleep(0)
            yield number
    finally:
        ended.append(first)


async def test_streams_run_side_by_side_and_keep_their_order() -> None:
    ended: list[int] = []
    streams = [numbers(first, 5, ended) for first in (0, 10, 20)]
    found = [pair async for pair in merged(streams)]
    for index in range(3):
        assert [item for i, item in found if i == index] == [*range(10 * index, 10 * index + 5)]
    assert [index for index, _ in found] != sorted(index for index, _ in found)


@pytest.mark.parametrize("count", [1, 3])
async def test_who_leaves_ends_every_stream(count: int) -> None:
    ended: list[int] = []
    async with aclosing(merged([numbers(i, 1000, ended) for i in range(count)])) as pairs:
        await anext(pairs)
        await asyncio.sleep(0.005)
    assert sorted(ended) == [*range(count)]


@pytest.mark.parametrize("count", [1, 3])
async def test_the_first_error_ends_every_stream_and_is_raised_as_it_is(count: int) -> None:
    ended: list[int] = []

    async def failing() -> AsyncGenerator[int]:
        yield 1
        raise EngineDeadError("gone")

    streams = [failing(), *(numbers(i, 10**6, ended) for i in range(1, count))]
    async with asyncio.timeout(5):
        with pytest.raises(EngineDeadError, match="gone"):
            [pair async for pair in merged(streams)]
    assert sorted(ended) == [*range(1, count)]


async def test_places_are_given_back_when_a_consumer_leaves(served: Served) -> None:
    served.engine.gate.clear()
    stream = generate_all(served.serving, "r", [[1], [2]], SamplingParams(n=2))
    waiting = asyncio.ensure_future(anext(stream))
    while served.engine.num_begun < 2:
        await asyncio.sleep(0)
    assert served.serving.admission.num_live == 4
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await stream.aclose()
    assert served.serving.admission.num_live == 0
    assert served.engine.num_left == 2


async def test_a_slow_reader_of_several_answers_misses_no_token(served: Served) -> None:
    (alone,) = [
        output
        async for _, output in generate_all(served.serving, "r", [[1]], SamplingParams())
        if output.is_finished
    ]
    seen: dict[int, list[int]] = {0: [], 1: []}
    async for index, output in generate_all(served.serving, "r", [[1], [2]], SamplingParams()):
        seen[index] += output.outputs[0].token_ids[len(seen[index]) :]
        await asyncio.sleep(0.002)
    assert seen == dict.fromkeys((0, 1), alone.outputs[0].token_ids)
