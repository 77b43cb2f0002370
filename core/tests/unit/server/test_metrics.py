from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dougong.errors import EngineDeadError
from dougong.server import serving as serving_module
from tests.unit.server.conftest import Served


async def samples(served: Served) -> dict[str, float]:
    answer = await served.client.get("/metrics")
    assert answer.status_code == 200
    return {
        ",".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


async def test_the_engines_numbers_are_shown(served: Served) -> None:
    shown = await samples(served)
    assert shown["dougong_waiting_requests"] == 7
    assert shown["dougong_preemptions_total"] == 5
    assert shown["dougong_kv_held_ratio"] == 0.25
    assert shown["dougong_prefix_hit_tokens_total"] == 10
    assert shown["dougong_engine_up"] == 1


async def test_finished_refused_aborted_and_failed_requests_are_told_apart(
    served: Served,
) -> None:
    await served.post("/v1/completions", prompt="AB", max_tokens=3)
    await served.post("/v1/completions", prompt="AB", stop_token_ids=[288])
    served.engine.gate.clear()
    leaving = asyncio.create_task(served.post("/v1/completions", prompt="A"))
    while served.engine.num_begun < 2:
        await asyncio.sleep(0.001)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    served.engine.gate.set()
    served.engine.death = EngineDeadError("gone")
    await served.post("/v1/completions", prompt="A")
    shown = await samples(served)
    for outcome in ("finished", "refused", "aborted", "failed"):
        found = [
            value
            for name, value in shown.items()
            if name.startswith("dougong_requests_total") and outcome in name
        ]
        assert found == [1], outcome
    assert shown["dougong_engine_up"] == 0


async def test_tokens_and_times_of_answers_are_counted(served: Served) -> None:
    await served.post("/v1/completions", prompt="AB", max_tokens=3, n=2)
    shown = await samples(served)
    assert shown["dougong_prompt_tokens_total"] == 2
    assert shown["dougong_cached_prompt_tokens_total"] == 1
    assert shown["dougong_generated_tokens_total"] == 6
    assert shown["dougong_time_to_first_token_seconds_count"] == 1
    assert shown["dougong_inter_token_seconds_count"] == 2
    assert shown["dougong_request_seconds_count"] == 1


async def test_a_busy_engine_is_shown_as_it_last_told(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await samples(served)
    monkeypatch.setattr(serving_module, "_STATS_TIMEOUT_S", 0.01)
    served.engine.is_busy = True
    async with asyncio.timeout(5):
        shown = await samples(served)
    assert shown["dougong_waiting_requests"] == 7
    assert shown["dougong_engine_stats_age_seconds"] > 0
