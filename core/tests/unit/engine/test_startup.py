from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dougong.config import CacheConfig, EngineArgs, SchedulerConfig
from dougong.contracts import ConfigChange, ConfigView, LoadReport, RankPlan
from dougong.engine.startup import StartedEngine, start_engine
from dougong.errors import CheckpointError, ConfigError, DougongError, PluginError
from dougong.scheduler import Scheduler
from dougong.testing.null_platform import NullPlatform
from dougong.testing.null_worker import NullWorker
from tests.support.installed_stubs import Installed
from tests.support.null_engine import NullModels
from tests.support.stub_plugins import Stub
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint


def start(model: str, **options: Any) -> StartedEngine:
    return start_engine(EngineArgs(model=model, platform="null", **options))


def test_a_platforms_proposals_reach_the_configuration(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ConfigView] = []

    def propose(self: NullPlatform, config: ConfigView) -> list[ConfigChange]:
        seen.append(config)
        return [ConfigChange("block_size", 8, "it likes eight")]

    monkeypatch.setattr(NullPlatform, "check_and_update_config", propose)
    started = start(null_models.write(), max_num_seqs=3)
    assert started.report.block_size == 8
    assert seen[0].block_size is None
    assert seen[0].max_num_seqs == 3
    assert seen[0].explicit >= {"max_num_seqs"}
    with pytest.raises(ConfigError, match=r"block_size=4 .*block_size=8"):
        start(null_models.write(), block_size=4)


QUERIES = {
    "facts": lambda self, device_index: 1 // 0,
    "claims": lambda self, arch: 1 // 0,
    "check_and_update_config": lambda self, config: 1 // 0,
    "get_worker_cls": lambda self: 1 // 0,
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_that_raises_is_the_plugins_fault(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(NullPlatform, query, QUERIES[query])
    with pytest.raises(PluginError, match=rf"{query}\("):
        start(null_models.write())


def test_a_start_that_fails_late_frees_what_it_took(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[NullWorker] = []
    monkeypatch.setattr(NullWorker, "shutdown", lambda self: ended.append(self))
    with pytest.raises(ConfigError, match="available"):
        start(null_models.write(available_bytes=10), num_kv_blocks=100)
    assert len(ended) == 1


class OtherBlocks(Scheduler):
    def __init__(self, config: SchedulerConfig, cache: CacheConfig) -> None:
        super().__init__(config, replace(cache, block_size=2 * cache.block_size))


def test_a_scheduler_with_other_blocks_than_the_layout_is_refused_and_all_is_freed(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[NullWorker] = []
    monkeypatch.setattr(NullWorker, "shutdown", lambda self: ended.append(self))
    monkeypatch.setattr("dougong.engine.startup.Scheduler", OtherBlocks)
    with pytest.raises(DougongError, match=r"blocks of 8 tokens.*has blocks of 4"):
        start(null_models.write(), block_size=4)
    assert len(ended) == 1


def test_an_unknown_architecture_is_refused_with_the_known_ones(
    null_models: NullModels, tmp_path: Path
) -> None:
    config = tiny_config(architectures=["LamaForCausalLM"])
    folder = write_tiny_checkpoint(tmp_path / "unknown", config)
    with pytest.raises(CheckpointError, match="nearest is LlamaForCausalLM"):
        start(str(folder))


def test_the_report_is_plain_data(null_models: NullModels) -> None:
    report = start(null_models.write()).report.to_json()
    assert report["platform"] == "null"
    assert set(report["seconds"]) == {"platform", "files", "plan", "open", "load", "warm_up"}
    assert {decision["field"] for decision in report["decisions"]} >= {"dtype", "num_kv_blocks"}


def test_a_vendor_that_ends_the_program_while_loading_is_told_by_name(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[NullWorker] = []

    def leave(self: NullWorker, plan: RankPlan) -> LoadReport:
        raise SystemExit(0)

    monkeypatch.setattr(NullWorker, "load_model", leave)
    monkeypatch.setattr(NullWorker, "shutdown", lambda self: ended.append(self))
    with pytest.raises(PluginError, match=r"dougong-null 1\.0\) tried to end the program"):
        start(null_models.write())
    assert len(ended) == 1


def test_an_architecture_that_a_plugin_brings_is_logged_once_in_a_start(
    null_models: NullModels,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks = """
from dougong.contracts import ModelRegistration


@hookimpl
def dougong_register_models():
    return [ModelRegistration("AcmeForCausalLM", alias_of="LlamaForCausalLM")]
"""
    installed = Installed(tmp_path / "stubs", monkeypatch)
    installed.add(Stub(distribution="acme", name="acme", has_platform=False, hooks=hooks))
    config = tiny_config(architectures=["AcmeForCausalLM"])
    folder = write_tiny_checkpoint(tmp_path / "tiny", config)
    with caplog.at_level(logging.INFO, logger="dougong"):
        started = start_engine(EngineArgs(model=str(folder), platform="cpu"))
    started.executor.shutdown()
    told = [line for line in caplog.messages if "adds architecture AcmeForCausalLM" in line]
    assert len(told) == 1
