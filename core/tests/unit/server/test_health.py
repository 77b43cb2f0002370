from __future__ import annotations

import asyncio

from dougong.errors import EngineDeadError
from tests.unit.server.conftest import Served


async def test_a_long_step_is_no_illness(served: Served) -> None:
    served.engine.is_busy = True
    watching = asyncio.create_task(served.serving.watch.run())
    await asyncio.sleep(0.02)
    answer = await served.client.get("/health")
    assert answer.status_code == 200
    assert answer.json()["engine_answered_s_ago"] >= 0.02
    watching.cancel()


async def test_a_dead_engine_is_told_with_its_cause(served: Served) -> None:
    assert (await served.client.get("/health")).status_code == 200
    served.engine.death = EngineDeadError("The engine's process was killed by signal 9.")
    await served.serving.watch.run()
    answer = await served.client.get("/health")
    assert answer.status_code == 503
    assert "signal 9" in answer.json()["error"]["message"]


async def test_new_requests_to_a_dead_engine_get_503_and_do_not_wait(served: Served) -> None:
    served.engine.death = EngineDeadError("gone")
    for stream in (False, True):
        async with asyncio.timeout(5):
            answer = await served.post("/v1/completions", prompt="A", stream=stream)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "engine_dead"
    assert (await served.client.get("/health")).status_code == 503
