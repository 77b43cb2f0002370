from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message

from dougong.errors import EngineDeadError
from dougong.server.event_stream import Events, EventStream
from tests.support.sse import DONE, events_of


class Connection:
    """A client that reads everything, until it leaves."""

    def __init__(self) -> None:
        self.text = ""
        self.status = 0
        self.is_over = False
        self.left = asyncio.Event()

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.status = message.get("status", self.status)
        self.text += message.get("body", b"").decode()
        self.is_over = message["type"] == "http.response.body" and not message["more_body"]


async def sent(first: dict[str, Any], rest: Events) -> Connection:
    connection = Connection()
    await EventStream(first, rest)({"type": "http"}, connection.receive, connection.send)
    return connection


async def test_a_whole_stream_ends_with_done() -> None:
    async def rest() -> Events:
        yield {"b": "好\n\n"}

    connection = await sent({"a": 1}, rest())
    assert events_of(connection.text) == [{"a": 1}, {"b": "好\n\n"}, DONE]
    assert connection.status == 200
    assert connection.is_over


@pytest.mark.parametrize("error", [EngineDeadError("gone"), ZeroDivisionError("inside")])
async def test_a_stream_that_failed_ends_with_an_error_and_never_with_done(
    error: Exception,
) -> None:
    async def rest() -> Events:
        yield {"b": 2}
        raise error

    connection = await sent({"a": 1}, rest())
    events = events_of(connection.text)
    assert events[:2] == [{"a": 1}, {"b": 2}]
    assert len(events) == 3
    assert events[2]["error"]["type"] == "server_error"
    assert "inside" not in connection.text
    assert connection.is_over


async def test_a_client_that_leaves_ends_what_makes_the_events() -> None:
    is_closed = False

    async def rest() -> Events:
        nonlocal is_closed
        try:
            yield {"b": 2}
            await asyncio.Event().wait()
        finally:
            is_closed = True

    connection = Connection()
    stream = EventStream({"a": 1}, rest())
    sending = asyncio.create_task(stream({"type": "http"}, connection.receive, connection.send))
    while '"b"' not in connection.text:
        await asyncio.sleep(0)
    connection.left.set()
    async with asyncio.timeout(5):
        await sending
    assert is_closed
    assert DONE not in connection.text


async def test_a_client_that_left_before_the_first_event_ends_it_all_the_same() -> None:
    is_closed = False

    async def rest() -> Events:
        nonlocal is_closed
        try:
            yield {"a": 1}
            yield {"b": 2}
        finally:
            is_closed = True

    events = rest()
    first = await anext(events)
    connection = Connection()
    connection.left.set()
    await EventStream(first, events)({"type": "http"}, connection.receive, connection.send)
    assert is_closed
