from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dougong.errors import EngineDeadError
from dougong.server import status_reader
from tests.support.fake_engine import FakeEngine
from tests.unit.server.conftest import Served


async def read(served: Served, times: int = 1) -> dict[str, Any]:
    """The newest sample, after so many readings."""
    for _ in range(times):
        await served.serving.status.read()
    return {name: column[-1] for name, column in served.serving.history.columns().items()}


async def test_a_sample_holds_what_the_engine_and_the_counters_tell(served: Served) -> None:
    await read(served)
    for _ in range(3):
        assert (await served.post("/v1/completions", prompt="A")).status_code == 200
    assert (await served.post("/v1/completions", prompt="A" * 200)).status_code == 400
    sample = await read(served)
    assert (sample["running"], sample["waiting"]) == (0, 7)
    assert (sample["kv_held"], sample["kv_cached"]) == (0.25, 0.125)
    assert (sample["finished"], sample["failed"]) == (3, 0)
    assert sample["tokens_per_s"] > 0
    for name in ("first_token", "between_tokens"):
        assert 0 < sample[f"{name}_p50"] <= sample[f"{name}_p95"]
    after = await read(served)
    assert (after["finished"], after["tokens_per_s"]) == (0, 0)
    assert after["first_token_p50"] is not None  # latencies are those of the last ten seconds


async def test_latencies_are_forgotten_after_ten_samples(served: Served) -> None:
    await served.post("/v1/completions", prompt="A")
    assert (await read(served, times=10))["first_token_p50"] is not None
    assert (await read(served))["first_token_p50"] is None


async def test_one_question_waits_for_a_long_step_and_the_last_answer_is_shown(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_reader, "_ANSWER_S", 0.01)
    asked = 0
    stats = FakeEngine.stats

    async def counted(engine: FakeEngine) -> Any:
        nonlocal asked
        asked += 1
        return await stats(engine)

    monkeypatch.setattr(FakeEngine, "stats", counted)
    assert (await read(served))["silence_s"] == 0
    served.engine.is_busy = True
    sample = await read(served, times=4)
    assert asked == 2
    assert sample["waiting"] == 7
    assert sample["silence_s"] > 0
    served.engine.is_busy = False
    assert (await read(served))["silence_s"] == 0
    assert asked == 2


async def test_a_dead_engine_has_no_numbers_and_the_reading_goes_on(served: Served) -> None:
    await read(served)
    served.engine.death = EngineDeadError("killed")
    served.serving.watch.note(served.engine.death)
    sample = await read(served, times=2)
    assert sample["running"] is sample["kv_held"] is None


async def test_it_reads_until_it_is_cancelled(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_reader, "PERIOD_S", 0.002)
    served.engine.is_busy = True
    monkeypatch.setattr(status_reader, "_ANSWER_S", 0.001)
    task = asyncio.create_task(served.serving.status.run())
    while served.serving.history.last < 3:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not [one for one in others if not one.done()]
