from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest

from dougong.cli.bench_serving.run import run_load
from dougong.cli.bench_serving.workload import ServeWorkload
from dougong.cli.http_exchange import Target
from tests.support.stub_server import serving

WORK = ServeWorkload(model="m", num_requests=6, input_len=3, output_len=2, num_warm_up=1)


class CountingServer:
    """Answers each request with one token; knows how many it had at once."""

    def __init__(self, takes_s: float = 0.005) -> None:
        self.takes_s = takes_s
        self.num_asked = 0
        self.num_now = 0
        self.most_at_once = 0

    def running(self) -> AbstractAsyncContextManager[Target]:
        return serving(self._handle)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = b'data: {"choices": [{"text": "a"}]}\n\ndata: [DONE]\n\n'
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                self.num_asked += 1
                self.num_now += 1
                self.most_at_once = max(self.most_at_once, self.num_now)
                await asyncio.sleep(self.takes_s)
                self.num_now -= 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        except asyncio.IncompleteReadError:
            writer.close()


async def test_every_request_is_measured_once_and_the_warm_up_is_not() -> None:
    server, ended = CountingServer(), list[int]()
    async with server.running() as target:
        run = await run_load(target, WORK, lambda: ended.append(1))
    assert (server.num_asked, len(run.answers), len(ended)) == (7, 6, 6)
    assert all(answer.error is None for answer in run.answers)
    assert run.seconds >= 0.005
    assert run.client_cpu_s > 0


async def test_no_more_are_under_way_than_asked_for() -> None:
    server = CountingServer()
    async with server.running() as target:
        await run_load(target, replace(WORK, concurrency=2))
        assert server.most_at_once == 2
        await run_load(target, WORK)
        assert server.most_at_once == 6


async def test_requests_are_sent_when_they_are_due() -> None:
    work = replace(WORK, request_rate=200.0, seed=3)
    async with CountingServer().running() as target:
        run = await run_load(target, work)
    due = [answer.due_s - run.begun_s for answer in run.answers]
    assert due == pytest.approx(work.arrivals_s())
    assert all(answer.sent_s >= answer.due_s for answer in run.answers)


async def test_a_server_that_is_not_there_fails_every_request() -> None:
    async with CountingServer().running() as target:
        pass  # and it is gone
    run = await run_load(target, WORK)
    assert all((answer.error or "").startswith("no connection") for answer in run.answers)
