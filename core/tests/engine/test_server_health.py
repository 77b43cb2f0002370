"""``/health`` beside a step that takes long: it is told at once, and it is well."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.null_engine import NULL_OPTIONS, NullModels, install_null_platform
from tests.support.served_here import ServedHere, served_here

STEP_S = 0.8
PROMPT: dict[str, Any] = {"prompt": [5] * 100, "max_tokens": 1, "ignore_eos": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHere]:
    folder = tmp_path_factory.mktemp("health")
    with pytest.MonkeyPatch.context() as patch:
        install_null_platform(folder / "site", patch)
        model = NullModels(folder / "models").write(step_seconds=STEP_S)
        with served_here(model, **NULL_OPTIONS) as server:
            yield server


def test_health_is_well_throughout_a_long_prefill(server: ServedHere) -> None:
    answers: list[httpx.Response] = []

    def ask() -> None:
        answers.append(httpx.post(f"{server.url}/v1/completions", json=PROMPT, timeout=30))

    asking = threading.Thread(target=ask)
    asking.start()
    told: list[dict[str, Any]] = []
    with server.client() as client:
        while asking.is_alive():
            answer = client.get("/health")
            assert answer.status_code == 200
            assert answer.json()["status"] == "ok"
            told.append(answer.json())
    assert answers[0].status_code == 200
    assert len(told) > 5, "health waited for the step"
    ages = [one["engine_answered_s_ago"] for one in told]
    assert max(ages) > STEP_S / 4, "no step was long enough for this test to mean anything"
