from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

from dougong.server.bounded_http import MAX_HEAD_BYTES, BoundedHttp

Ask = Callable[[bytes], Awaitable[bytes]]
ENDLESS = b"x" * (4 * MAX_HEAD_BYTES)


async def count(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the length of the body."""
    body = await Request(scope, receive).body()
    await PlainTextResponse(str(len(body)))(scope, receive, send)


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    config = uvicorn.Config(count, log_config=None, lifespan="off", ws="none")
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BoundedHttp(config, state, {}), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def ask(request: bytes) -> bytes:
        """Everything that comes back until the server hangs up."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        try:
            async with asyncio.timeout(20):
                answer = await reader.read()
        except ConnectionResetError:
            answer = b""
        writer.close()
        return answer

    yield ask
    server.close()
    await server.wait_closed()


def head(*lines: str) -> bytes:
    return "\r\n".join(("POST / HTTP/1.1", "Host: a", *lines)).encode()


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + ENDLESS,
        head("X: ") + ENDLESS,
        head(*(f"X{i}: {'y' * 1000}" for i in range(200))),
        ENDLESS[:10] + b" / HTTP/1.1\r\n" + ENDLESS,
    ],
    ids=["path", "one header", "many headers", "method"],
)
async def test_a_head_without_an_end_is_refused(ask: Ask, request_: bytes) -> None:
    answer = await ask(request_)
    status, _, rest = answer.partition(b"\r\n")
    assert status.split(b" ")[1] in (b"431", b"400")
    error = json.loads(rest.partition(b"\r\n\r\n")[2])["error"]
    assert error["type"] == "invalid_request_error"


async def test_trailers_without_an_end_end_the_connection(ask: Ask) -> None:
    chunked = head("Transfer-Encoding: chunked", "", "1\r\na", "0", "X: ")
    assert b"200 OK" not in await ask(chunked + ENDLESS)


async def test_what_is_no_http_is_refused_as_everything_is(ask: Ask) -> None:
    answer = await ask(b"hello\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["param"] is None


async def test_a_body_may_be_larger_than_a_head(ask: Ask) -> None:
    length = 3 * MAX_HEAD_BYTES
    whole = head(f"Content-Length: {length}", "Connection: close", "", "")
    assert (await ask(whole + b"b" * length)).endswith(str(length).encode())
    parts = b"".join(b"400\r\n" + b"b" * 1024 + b"\r\n" for _ in range(length // 1024))
    chunked = head("Transfer-Encoding: chunked", "Connection: close", "", "")
    answer = await ask(chunked + parts + b"0\r\n\r\n")
    assert answer.endswith(str(length).encode())


async def test_many_requests_on_one_connection_are_all_answered(ask: Ask) -> None:
    one = head("Content-Length: 3", f"X: {'y' * 1000}", "", "abc")
    last = head("Content-Length: 3", "Connection: close", "", "abc")
    answers = await ask(one * 200 + last)
    assert answers.count(b"HTTP/1.1 200 OK") == 201
