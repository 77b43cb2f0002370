"""Each level of fallback, brought about on purpose: told, counted, and refused by ``--strict``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dougong import LLM
from dougong.engine.fallback_metric import count_fallbacks
from dougong.errors import ConfigError
from dougong.planner import Fallback, FallbackLevel
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

ONLY_WIDE = """
from dougong.contracts import MultipleOf, Needs
from dougong.ops import register_kernel


@register_kernel("lm_head", name="ext/head", when=Needs(hidden_size=MultipleOf(4096)))
def head(hidden, weight):
    raise AssertionError("its condition does not hold")
"""
HEADS_OF_24 = tiny_config(head_dim=24)
CASES: dict[FallbackLevel, tuple[Stub | None, dict[str, Any], str]] = {
    FallbackLevel.OP: (
        Stub(distribution="ext", name="ext", has_platform=False, hooks=ONLY_WIDE),
        {"platform": "bare"},
        "hidden_size 64; takes multiples of 4096",
    ),
    FallbackLevel.PATH: (None, {"platform": "cpu"}, "head size 24"),
    FallbackLevel.PLATFORM: (
        Stub(distribution="away", name="away", probe='return NotHere("no device answers")'),
        {},
        "no device answers",
    ),
}


@pytest.fixture(params=list(FallbackLevel), ids=str)
def case(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[FallbackLevel, str, dict[str, Any], str]:
    """Level, model, options, and what the reason says."""
    level: FallbackLevel = request.param
    stub, options, reason = CASES[level]
    installed = Installed(tmp_path / "stubs", monkeypatch)
    if level is not FallbackLevel.PLATFORM:
        installed.add(Stub(distribution="dougong-bare", name="bare", auto_select=False))
    if stub is not None:
        installed.add(stub)
    config = HEADS_OF_24 if level is FallbackLevel.PATH else tiny_config(tie_word_embeddings=True)
    model = str(write_tiny_checkpoint(tmp_path / "model", config))
    return level, model, {"num_kv_blocks": 20, **options}, reason


def of_level(llm: LLM, level: FallbackLevel) -> Fallback:
    (found,) = (one for one in llm.plan.fallbacks if one.level is level)
    return found


def test_a_fallback_is_in_the_plan_in_the_log_once_and_in_the_metric(
    case: tuple[FallbackLevel, str, dict[str, Any], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    level, model, options, reason = case
    with (
        caplog.at_level(logging.WARNING, logger="dougong"),
        LLM(model, in_own_process=False, **options) as llm,
    ):
        fallback = of_level(llm, level)
        assert reason in fallback.reason
        assert fallback.cost_hint
        (line,) = (line for line in llm.report.lines() if " fallback" in line)
        assert fallback.subject in line
        registry = CollectorRegistry()
        count_fallbacks(llm.plan, registry)
        labels = {"level": level, "subject": fallback.subject, "reason": fallback.reason}
        assert registry.get_sample_value("dougong_fallback_total", labels) == 1
        assert caplog.messages.count(str(fallback)) == 1


def test_strict_refuses_it_before_anything_is_loaded(
    case: tuple[FallbackLevel, str, dict[str, Any], str],
) -> None:
    level, model, options, reason = case
    for file in Path(model).glob("*.safetensors"):
        file.unlink()
    with pytest.raises(ConfigError) as caught:
        LLM(model, strict=True, **options)
    (problem,) = (one for one in caught.value.problems if f"{level} fallback" in one)
    assert "--strict" in problem
    assert reason in problem
