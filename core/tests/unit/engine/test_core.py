from __future__ import annotations

import logging

import pytest

from dougong.config import EngineArgs
from dougong.contracts import StepStats
from dougong.engine.core import EngineCore
from dougong.errors import RequestError
from dougong.messages import Request, SamplingParams
from dougong.platforms import PluginHooks
from tests.support.null_engine import NULL_OPTIONS, NullModels

ARGS = NULL_OPTIONS


def request(request_id: str) -> Request:
    params = SamplingParams(temperature=0.0, max_tokens=3)
    return Request(request_id=request_id, prompt_token_ids=(5, 6), sampling_params=params)


def test_steps_run_requests_to_their_end_and_are_timed(null_models: NullModels) -> None:
    core = EngineCore.start(EngineArgs(model=null_models.write(), **ARGS))
    core.add(request("a"))
    tokens = []
    while core.has_requests():
        tokens += [token for delta in core.step() for token in delta.new_token_ids]
    assert len(tokens) == 3
    assert core.step() == []
    times = core.stats().times
    assert times["num_steps"] == 3
    assert times["step_s"] == times["schedule_s"] + times["model_s"] + times["update_s"]
    core.shutdown()


def test_an_abort_frees_the_blocks_at_once(null_models: NullModels) -> None:
    core = EngineCore.start(EngineArgs(model=null_models.write(), **ARGS))
    core.add(request("a"))
    core.step()
    assert core.stats().scheduler.kv_cache.num_held_blocks == 1
    assert core.abort(["a", "unknown"]) == ["a"]
    assert core.stats().scheduler.kv_cache.num_held_blocks == 0
    core.health()
    core.shutdown()


def test_an_id_in_use_is_refused(null_models: NullModels) -> None:
    core = EngineCore.start(EngineArgs(model=null_models.write(), **ARGS))
    core.add(request("a"))
    with pytest.raises(RequestError):
        core.add(request("a"))
    core.shutdown()


def test_the_log_shows_the_start_report(
    null_models: NullModels, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="dougong"):
        EngineCore.start(EngineArgs(model=null_models.write(), **ARGS)).shutdown()
    assert "block_size = 4 [user] asked for" in caplog.text
    assert "machine memory" in caplog.text


def test_plugins_hear_of_steps_only_if_they_ask(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[StepStats] = []
    monkeypatch.setattr(PluginHooks, "wants_steps", property(lambda self: True))
    monkeypatch.setattr(PluginHooks, "step_done", lambda self, stats: heard.append(stats))
    core = EngineCore.start(EngineArgs(model=null_models.write(), **ARGS))
    core.add(request("a"))
    while core.has_requests():
        core.step()
    assert [(one.num_prefill_tokens, one.num_decode_tokens) for one in heard] == [
        (2, 0), (0, 1), (0, 1),
    ]  # fmt: skip
    core.shutdown()
