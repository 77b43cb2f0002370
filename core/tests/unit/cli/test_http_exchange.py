from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from dougong.cli.http_exchange import Connections, Exchange, Target
from dougong.errors import ConfigError
from tests.support.stub_server import serving

OK = b"HTTP/1.1 200 OK\r\n"


@asynccontextmanager
async def answering(*parts: bytes, ends: bool = False) -> AsyncIterator[tuple[Target, list[bytes]]]:
    """A server that sends these parts for each request, a moment between them."""
    asked: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            asked.append(head)
            for part in parts:
                writer.write(part)
                await asyncio.sleep(0.002)
            if ends:
                break
        writer.close()

    async with serving(handle) as target:
        yield target, asked


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


async def asked_once(parts: Sequence[bytes], *, ends: bool = False) -> Exchange:
    async with answering(*parts, ends=ends) as (target, _):
        connections = Connections(target)
        async with asyncio.timeout(10):
            exchange = await connections.ask("GET", "/x")
        connections.close()
        return exchange


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (*pieces, b""))


@pytest.mark.parametrize("cut", [1, 3, 5, 17, 1000])
async def test_an_answer_in_chunks_is_the_same_however_it_is_cut(cut: int) -> None:
    data = OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"one\r\n", b"two", b"three" * 9)
    parts = [data[i : i + cut] for i in range(0, len(data), cut)]
    exchange = await asked_once(parts)
    assert [piece for _, piece in exchange.pieces] == [b"one\r\n", b"two", b"three" * 9]
    assert exchange.status == 200
    assert exchange.error is None


async def test_pieces_carry_the_time_at_which_they_were_whole() -> None:
    first, second = (b"%x\r\n%s\r\n" % (len(one), one) for one in (b"first", b"second"))
    head = OK + b"Transfer-Encoding: chunked\r\n\r\n"
    exchange = await asked_once([head + first + second[:4], second[4:], b"0\r\n\r\n"])
    (first_s, _), (second_s, _) = exchange.pieces
    assert exchange.sent_s < first_s < second_s < exchange.ended_s


async def test_an_answer_with_a_length_ends_there_and_the_connection_is_used_again() -> None:
    whole = OK + b"Content-Length: 5\r\n\r\nhello"
    async with answering(whole) as (target, asked):
        connections = Connections(target)
        for _ in range(3):
            exchange = await connections.ask("POST", "/v1/x", b"{}")
            assert (exchange.body, exchange.error) == (b"hello", None)
        assert len(connections._free) == 1
        connections.close()
        assert asked[0].startswith(b"POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"Content-Length: 2\r\n" in asked[0]


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    exchange = await asked_once([OK + b"\r\nall", b" of it"], ends=True)
    assert (exchange.body, exchange.error) == (b"all of it", None)


@pytest.mark.parametrize(
    "parts",
    [
        [OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel"],
        [OK + b"Content-Length: 9\r\n\r\nhello"],
        [b"HTTP/1.1 200"],
        [],
    ],
)
async def test_a_connection_that_ends_before_the_answer_is_an_error(parts: list[bytes]) -> None:
    exchange = await asked_once(parts, ends=True)
    assert exchange.error is not None
    assert exchange.error.startswith("the connection ended")


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0\r\n\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"]
)
async def test_what_is_not_http_is_an_error(answer: bytes) -> None:
    exchange = await asked_once([answer])
    assert exchange.error is not None
    assert exchange.error.startswith("the answer is not HTTP")


async def test_a_server_that_is_not_there_is_an_error_of_the_exchange() -> None:
    async with answering() as (target, _):
        pass  # and it is gone
    exchange = await Connections(target).ask("GET", "/x")
    assert exchange.status == 0
    assert exchange.error is not None
    assert exchange.error.startswith("no connection")


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        ("http://here:8000", "http://here:8000"),
        ("here:8000", "http://here:8000"),
        ("https://here/proxy/v1/", "https://here:443/proxy"),
        ("http://[::1]:9/v1", "http://[::1]:9"),
    ],
)
def test_a_url_is_taken_with_or_without_the_version_at_its_end(url: str, whole: str) -> None:
    assert Target.of(url).url == whole


@pytest.mark.parametrize("url", ["ftp://here", "http://", "http://here:port"])
def test_what_is_no_server_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--url"):
        Target.of(url)


def test_a_key_goes_with_every_request() -> None:
    request = Target.of("http://here", "secret").request("GET", "/v1/models")
    assert b"\r\nAuthorization: Bearer secret\r\n" in request
