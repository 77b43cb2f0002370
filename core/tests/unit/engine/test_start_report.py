from __future__ import annotations

import json
import logging
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from dougong.config import Decision, EngineArgs
from dougong.engine.core import EngineCore
from dougong.engine.fallback_warnings import fallback_warnings
from dougong.engine.start_report import MemoryReport, StartReport
from dougong.scheduler import RequestLimits
from tests.support.installed_stubs import Installed
from tests.support.made_up_plans import chip_plan, plain_plan
from tests.support.null_engine import NULL_OPTIONS, NullModels
from tests.support.stub_plugins import Stub

REPORT = StartReport(
    model="m",
    architecture="LlamaForCausalLM",
    vocab_size=288,
    dtype="float32",
    platform="null",
    devices=("Null",),
    platform_reasons=("platform null: asked for",),
    decisions=(
        Decision("max_num_seqs", 7, "user", "asked for"),
        Decision("seed", 0, "core", "default", is_default=True),
    ),
    memory=MemoryReport(limit=1, budget=1, weights=1, kv_cache=1),
    num_kv_blocks=8,
    block_size=16,
    limits=RequestLimits(max_model_len=256, num_token_slots=128),
    plan=plain_plan(),
)


def test_the_block_leaves_out_what_nobody_decided_and_the_data_keeps_it() -> None:
    text = "\n".join(REPORT.lines())
    assert "max_num_seqs = 7 [user] asked for" in text
    assert "seed" not in text
    assert [item["field"] for item in REPORT.to_json()["decisions"]] == ["max_num_seqs", "seed"]


def test_a_fallback_and_an_oddity_are_warned_of_once_each() -> None:
    fallbacks = chip_plan().fallbacks
    twice = replace(
        REPORT,
        plan=replace(chip_plan(), fallbacks=(*fallbacks, fallbacks[0])),
        notes=("odd", str(fallbacks[0]), "odd"),
    )
    assert twice.warnings() == (*fallback_warnings(chip_plan()), "odd")
    assert all("\n".join(twice.warnings()).count(one.subject) == 1 for one in fallbacks)
    assert REPORT.warnings() == ()


def test_data_has_the_plan_and_crosses_a_process_border() -> None:
    report = replace(REPORT, plan=chip_plan())
    assert report.to_json()["plan"]["fallbacks"][0]["level"] == "op"
    assert json.dumps(report.to_json())
    assert pickle.loads(pickle.dumps(report)) == report


def test_a_plain_start_takes_a_dozen_lines(null_models: NullModels) -> None:
    core = EngineCore.start(EngineArgs(model=null_models.write(), platform="null"))
    assert len(core.report.lines()) <= 12
    core.shutdown()


def test_plugins_at_fault_that_stop_nothing_share_one_line_and_have_one_warning_each(
    null_models: NullModels,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    installed = Installed(tmp_path / "stubs", monkeypatch)
    installed.add(Stub(plugin_head="1 / 0"))
    late = Stub(distribution="late", name="late", hooks="import fakert")
    extension = Stub(distribution="ops", name="ops", has_platform=False, hooks="import opsrt")
    installed.add(late)
    installed.add(extension)
    installed.add(Stub(distribution="newplat", name="new", requires_contract=">=9"))
    # a copy of one distribution further down the path
    installed.add(Stub(distribution="newplat", name="new", requires_contract=">=9"))
    with caplog.at_level(logging.WARNING, logger="dougong"):
        core = EngineCore.start(EngineArgs(model=null_models.write(), **NULL_OPTIONS))
    core.shutdown()
    (line,) = (line for line in core.report.lines() if "plugin at fault" in line)
    assert "and 4 more" in line
    assert any("shadowed: " in sentence for sentence in core.report.plugin_faults)
    for what in ("ZeroDivisionError", "refused: ", "named 'fakert'", "named 'opsrt'"):
        assert len([sentence for sentence in core.report.plugin_faults if what in sentence]) == 1
        assert len([message for message in caplog.messages if what in message]) == 1
