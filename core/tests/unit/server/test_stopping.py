from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest
import uvicorn

from dougong.server import stopping
from dougong.server.stopping import StoppableServer

Calls = list[str]


def server(calls: Calls, drain_timeout_s: float = 60.0) -> StoppableServer:
    config = uvicorn.Config(lambda: None, log_config=None)
    return StoppableServer(
        config,
        on_stopping=lambda: calls.append("stopping"),
        cut_short=lambda: calls.append("cut short"),
        drain_timeout_s=drain_timeout_s,
    )


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("one", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_drains_the_second_cuts_short_and_more_change_nothing(
    one: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "FORCE_AFTER_S", 0.0)
    calls: Calls = []
    stoppable = server(calls)
    with stoppable.capture_signals():
        os.kill(os.getpid(), one)
        await until(lambda: stoppable.should_exit)
        assert calls == ["stopping"]
        assert not stoppable.was_cut_short
        os.kill(os.getpid(), one)
        await until(lambda: len(calls) == 2)
        os.kill(os.getpid(), one)
        await until(lambda: stoppable.force_exit)
    assert calls == ["stopping", "cut short"]


async def test_a_signal_after_the_last_answer_ends_nothing_but_waiting() -> None:
    """The engine may be closing by then; the server is not killed, and was not cut short."""
    calls: Calls = []
    stoppable = server(calls)
    with stoppable.capture_signals():
        stoppable.stop("signal SIGTERM")
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: len(calls) == 2)
    assert not stoppable.was_cut_short


async def test_an_open_answer_was_cut_short() -> None:
    stoppable = server([])
    answer = asyncio.create_task(asyncio.sleep(60))
    stoppable.server_state.tasks.add(answer)
    stoppable.stop("signal SIGTERM")
    stoppable.end_now("a second signal")
    answer.cancel()
    assert stoppable.was_cut_short


async def test_draining_takes_no_longer_than_it_may() -> None:
    calls: Calls = []
    stoppable = server(calls, drain_timeout_s=0.0)
    stoppable.stop("the engine is dead")
    stoppable.stop("again")
    await until(lambda: len(calls) == 2)
    assert calls == ["stopping", "cut short"]
