from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dougong.errors import EngineDeadError
from tests.support.fake_engine import FakeEngine
from tests.support.made_up_plans import chip_plan
from tests.unit.server.conftest import Served


async def status(served: Served, query: str = "") -> dict[str, Any]:
    answer = await served.client.get(f"/status.json{query}")
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_the_first_answer_says_what_runs_and_later_ones_what_is_new(served: Served) -> None:
    await served.serving.status.read()
    first = await status(served)
    assert first["about"]["names"] == ["tiny", "also/tiny"]
    assert first["about"]["platform"] == "null"
    assert first["about"]["max_model_len"] == 64
    assert (first["about"]["has_chat"], first["about"]["makes_text"]) == (True, True)
    assert first["history"]["last"] == len(first["history"]["samples"]["time"]) == 1
    await served.serving.status.read()
    await served.serving.status.read()
    later = await status(served, "?after=1")
    assert "about" not in later
    assert later["history"]["last"] == 3
    assert len(later["history"]["samples"]["running"]) == 2
    assert later["started"] == first["started"]


async def test_totals_and_the_cache_are_told(served: Served) -> None:
    assert (await status(served))["kv"] is None
    await served.serving.status.read()
    answer = (await served.post("/v1/completions", prompt="A")).json()
    told = await status(served)
    assert told["totals"]["finished"] == 1
    assert told["totals"]["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert told["totals"]["generated_tokens"] == answer["usage"]["completion_tokens"]
    assert told["totals"]["preemptions"] == 5
    assert told["kv"]["num_held_blocks"] == 2


async def test_a_model_without_a_kv_cache_has_none_to_tell_of(served: Served) -> None:
    assert (await status(served))["about"]["num_token_slots"] == 128
    object.__setattr__(served.engine.report, "num_kv_blocks", 0)
    assert (await status(served))["about"]["num_token_slots"] is None


async def test_every_fallback_of_the_plan_is_there_once(served: Served) -> None:
    plan = chip_plan()
    object.__setattr__(served.engine.report, "plan", plan)
    about = (await status(served))["about"]
    told = [(one["level"], one["subject"], one["reason"]) for one in about["fallbacks"]]
    assert told == [(one.level, one.subject, one.reason) for one in dict.fromkeys(plan.fallbacks)]
    assert told
    assert not [note for note in about["notes"] if "fallback" in note]


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "NaN", "9" * 40, "٣", ""])
async def test_a_wrong_number_is_refused_by_the_fields_name(served: Served, after: str) -> None:
    answer = await served.client.get("/status.json", params={"after": after})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "after"


async def test_a_key_guards_it(serve: Callable[..., Served]) -> None:
    served = serve(api_keys=("k",))
    assert (await served.client.get("/status.json")).status_code == 401
    allowed = await served.client.get("/status.json", headers={"Authorization": "Bearer k"})
    assert allowed.status_code == 200
    assert allowed.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_failed_is_among_the_errors_once_and_its_prompt_is_not(
    served: Served, stream: bool
) -> None:
    served.engine.num_steps_before_death = 2
    await served.post("/v1/completions", prompt="S3cret", stream=stream)
    told = await status(served)
    assert [(one["route"], one["status"], one["count"]) for one in told["errors"]] == [
        ("/v1/completions", 503, 1)
    ]
    assert told["state"] == "dead"
    assert "killed" in told["state_reason"]
    assert "S3cret" not in str(told)


async def test_an_unforeseen_failure_is_among_them_and_its_words_are_not(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("S3cret")

    monkeypatch.setattr(FakeEngine, "generate", fail)
    assert (await served.post("/v1/completions", prompt="A")).status_code == 500
    told = await status(served)
    assert [one["kind"] for one in told["errors"]] == ["ValueError"]
    assert "S3cret" not in str(told)


async def test_wrong_requests_are_no_errors_of_the_server(served: Served) -> None:
    await served.post("/v1/completions", prompt=7)
    await served.post("/v1/completions", prompt="A", model="other")
    await served.client.get("/nothing")
    assert (await status(served))["errors"] == []


async def test_the_state_is_that_of_health(served: Served) -> None:
    assert (await status(served))["state"] == "ok"
    served.serving.admission.is_stopping = True
    assert (await status(served))["state"] == "stopping"
    served.serving.watch.note(EngineDeadError("killed"))
    assert (await status(served))["state"] == "dead"
