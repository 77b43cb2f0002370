from __future__ import annotations

import asyncio
import logging

import pytest

from dougong.errors import EngineDeadError
from dougong.server.engine_watch import EngineWatch
from tests.support.fake_engine import FakeEngine


async def test_an_engine_in_a_long_step_lives_and_its_silence_can_be_read(
    engine: FakeEngine,
) -> None:
    engine.is_busy = True
    watch = EngineWatch(engine)
    watching = asyncio.create_task(watch.run())
    await asyncio.sleep(0.02)
    assert watch.death is None
    assert watch.answer_age_s >= 0.02
    watching.cancel()


async def test_the_death_of_an_engine_in_a_step_is_known_at_once(engine: FakeEngine) -> None:
    engine.is_busy = True
    watch = EngineWatch(engine)
    watching = asyncio.create_task(watch.run())
    await asyncio.sleep(0.005)
    engine.death = EngineDeadError("killed")
    async with asyncio.timeout(5):
        await watch.died.wait()
        await watching
    assert watch.death is engine.death


async def test_a_request_that_meets_the_death_tells_of_it_before_the_next_question(
    engine: FakeEngine,
) -> None:
    watch = EngineWatch(engine)
    watching = asyncio.create_task(watch.run())
    await asyncio.sleep(0.005)
    watch.note(ValueError("of one request"))
    assert watch.death is None
    watch.note(EngineDeadError("killed"))
    assert str(watch.death) == "killed"
    async with asyncio.timeout(5):
        await watching


@pytest.mark.parametrize("is_meant", [False, True])
async def test_only_a_death_that_nobody_meant_is_an_alarm(
    engine: FakeEngine,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_meant: bool,
) -> None:
    monkeypatch.setattr(logging.getLogger("dougong"), "propagate", True)
    watch = EngineWatch(engine)
    watch.is_closing = is_meant
    watch.note(EngineDeadError("closed"))
    assert bool(caplog.records) is not is_meant
