from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from dougong.server.disconnect import ClientGoneError, while_connected


class Line:
    """A connection; some of the body may still come before its end."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[str] = asyncio.Queue()

    async def receive(self) -> Message:
        return {"type": await self.messages.get()}


async def test_the_result_comes_back_and_nothing_is_left_running() -> None:
    async def work() -> int:
        return 7

    before = asyncio.all_tasks()
    assert await while_connected(Line().receive, work()) == 7
    assert asyncio.all_tasks() == before


async def test_an_error_of_the_work_is_its_own() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await while_connected(Line().receive, work())


async def test_work_is_cancelled_when_the_client_leaves_and_has_ended_then() -> None:
    has_ended = False

    async def work() -> None:
        nonlocal has_ended
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            has_ended = True

    line = Line()
    waiting = asyncio.create_task(while_connected(line.receive, work()))
    line.messages.put_nowait("http.request")
    await asyncio.sleep(0.005)
    assert not waiting.done()
    line.messages.put_nowait("http.disconnect")
    with pytest.raises(ClientGoneError):
        await waiting
    assert has_ended


async def test_who_is_cancelled_takes_the_work_along() -> None:
    has_ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()

    waiting = asyncio.create_task(while_connected(Line().receive, work()))
    await asyncio.sleep(0.005)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert has_ended.is_set()
