"""Scenario A18, fifty times each: whoever leaves takes nothing along and leaves nothing behind."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from dougong.engine.async_engine import AsyncEngine
from tests.support.null_engine import NULL_OPTIONS, NullModels, install_null_platform
from tests.support.served_here import ServedHere, served_here

TIMES = 50
STEP_S = 0.001
CHUNK = 8
PROMPT_LEN = 300 * CHUNK  # so many steps of prefill: time enough to leave
TOKENS = "dougong_generated_tokens_total"
REQUESTS = "dougong_requests_total"
BODY = {"max_tokens": 2000, "temperature": 0, "ignore_eos": True}
SHORT: dict[str, Any] = {"prompt": [7], "max_tokens": 2, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def aborted() -> list[str]:
    """Every id that the engine was told to give up."""
    return []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, aborted: list[str]) -> Iterator[ServedHere]:
    folder = tmp_path_factory.mktemp("departures")
    told = AsyncEngine._abort

    def abort(engine: AsyncEngine, engine_ids: Sequence[str]) -> None:
        aborted.extend(engine_ids)
        told(engine, engine_ids)

    with pytest.MonkeyPatch.context() as patch:
        install_null_platform(folder / "site", patch)
        patch.setattr(AsyncEngine, "_abort", abort)
        model = NullModels(folder / "models").write(step_seconds=STEP_S)
        config = Path(model) / "config.json"
        longer = {**json.loads(config.read_text()), "max_position_embeddings": 4096}
        config.write_text(json.dumps(longer))
        options = {
            **NULL_OPTIONS,
            "max_num_seqs": 1,
            "max_num_batched_tokens": CHUNK,
            "enable_prefix_caching": False,
        }
        with served_here(model, **options) as server:
            yield server


@pytest.fixture(scope="module")
def client(server: ServedHere) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def until(holds: Callable[[], bool], within_s: float = 20.0) -> None:
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.001)


def ask(server: ServedHere, num_tokens: int, *, is_stream: bool) -> socket.socket:
    """A request on a connection of its own, nothing of the answer read."""
    address = urlsplit(server.url)
    prompt = [9] * num_tokens
    content = json.dumps({**BODY, "prompt": prompt, "stream": is_stream}).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    connection = socket.create_connection((address.hostname, address.port), timeout=20)
    connection.sendall(head.encode() + content)
    return connection


def is_idle(server: ServedHere) -> bool:
    scheduler = server.stats().scheduler
    numbers = (scheduler.num_running, scheduler.num_waiting, scheduler.kv_cache.num_held_blocks)
    return not any(numbers) and server.serving.admission.num_live == 0


def num_held(server: ServedHere) -> int:
    return server.stats().scheduler.kv_cache.num_held_blocks


def check_serves_at_once(client: httpx.Client) -> None:
    answer = client.post("/v1/completions", json=SHORT)
    assert answer.json()["usage"]["completion_tokens"] == 2


def num_ended(server: ServedHere, outcome: str) -> float:
    return server.metric(REQUESTS, route="completions", outcome=outcome)


def test_fifty_who_leave_during_their_prefill(server: ServedHere, client: httpx.Client) -> None:
    before, tokens = num_ended(server, "aborted"), server.metric(TOKENS)
    for time_no in range(TIMES):
        with closing(ask(server, PROMPT_LEN, is_stream=bool(time_no % 2))):
            until(lambda: num_held(server) > 0)
        until(lambda: is_idle(server))
        check_serves_at_once(client)
    assert num_ended(server, "aborted") - before == TIMES
    assert server.metric(TOKENS) - tokens == TIMES * SHORT["max_tokens"], "not in the prefill"


def test_fifty_who_leave_while_they_are_answered(server: ServedHere, client: httpx.Client) -> None:
    before = num_ended(server, "aborted")
    for time_no in range(TIMES):
        tokens = server.metric(TOKENS)
        with closing(ask(server, 8, is_stream=bool(time_no % 2))):
            until(lambda: server.metric(TOKENS) > tokens)  # noqa: B023 - called before it changes
        until(lambda: is_idle(server))
        check_serves_at_once(client)
    assert num_ended(server, "aborted") - before == TIMES


def test_fifty_who_leave_the_queue_while_a_neighbour_is_answered(
    server: ServedHere, client: httpx.Client, aborted: list[str]
) -> None:
    """The neighbour is neither disturbed nor told; nobody else ever held a block."""
    body = {**BODY, "prompt": [9] * 8, "max_tokens": 20}
    alone = client.post("/v1/completions", json=body).json()["choices"][0]["text"]
    before, num_aborted = num_ended(server, "aborted"), len(aborted)
    with closing(ask(server, 8, is_stream=True)):
        until(lambda: server.stats().scheduler.num_running == 1)
        for time_no in range(TIMES):
            with closing(ask(server, 8, is_stream=bool(time_no % 2))):
                until(lambda: server.stats().scheduler.num_waiting == 1)
            until(lambda: server.stats().scheduler.num_waiting == 0)
            assert server.stats().scheduler.num_running == 1
        assert num_ended(server, "aborted") - before == TIMES
        assert len(aborted) - num_aborted == TIMES
    until(lambda: is_idle(server))
    check_serves_at_once(client)
    assert client.post("/v1/completions", json=body).json()["choices"][0]["text"] == alone


def test_fifty_who_stay_to_the_end_are_never_given_up(
    server: ServedHere, client: httpx.Client, aborted: list[str]
) -> None:
    until(lambda: is_idle(server))
    before, finished = len(aborted), num_ended(server, "finished")
    for time_no in range(TIMES):
        body = {**SHORT, "stream": bool(time_no % 2)}
        assert client.post("/v1/completions", json=body).status_code == 200
    until(lambda: num_ended(server, "finished") - finished == TIMES)
    assert aborted[before:] == []
    assert is_idle(server)
