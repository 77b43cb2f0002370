"""Fallbacks of all levels together, and their borders: told once each, counted, refused by
``--strict``; what the user wanted so is none."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType
from prometheus_client import REGISTRY, generate_latest

from dougong import LLM, AsyncEngine, SamplingParams
from dougong.config import EngineOptions
from dougong.errors import ConfigError
from dougong.planner import FallbackLevel
from tests.support.command_line import run_command
from tests.support.greedy import greedy_tokens
from tests.support.installed_stubs import Installed
from tests.support.stub_attention import REFERENCE
from tests.support.stub_plugins import Stub
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

HALF_ONLY = """
from dougong.contracts import Needs
from dougong.ops import register_kernel


@register_kernel("top_k_top_p", name="ext/cut", when=Needs(dtype="float16"))
def cut(logits, top_k, top_p):
    raise AssertionError("its condition does not hold")
"""
EXTENSION = Stub(distribution="ext", name="ext", has_platform=False, hooks=HALF_ONLY)
AWAY = Stub(distribution="away", name="away", probe='return NotHere("no device answers")')
REASONS = {
    FallbackLevel.OP: "ext/cut: dtype float32; takes float16",
    FallbackLevel.PATH: "head size 24; takes multiples of 16",
    FallbackLevel.PLATFORM: "away: no device answers",
}
HEADS_OF_24 = tiny_config(head_dim=24)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("model"), HEADS_OF_24))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    monkeypatch.setenv("STUB_COUNTER", str(tmp_path / "calls"))
    return Installed(tmp_path / "stubs", monkeypatch)


def test_all_three_levels_at_once_are_on_the_screen_once_each(
    installed: Installed, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for stub in (EXTENSION, AWAY):
        installed.add(stub)
    assert run_command("generate", "the", "--model", model, "--max-tokens", "3", "--json") == 0
    shown = capsys.readouterr()
    start = json.loads(shown.out)["start"]
    assert [one["level"] for one in start["plan"]["fallbacks"]] == ["op", "path", "platform"]
    for level, reason in REASONS.items():
        (line,) = (line for line in shown.err.splitlines() if f" {level} fallback: " in line)
        assert reason in line


def test_strict_refuses_all_of_them_in_one_message(
    installed: Installed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for stub in (EXTENSION, AWAY):
        installed.add(stub)
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(HEADS_OF_24))
    assert run_command("generate", "the", "--model", str(folder), "--strict") == 2
    told = capsys.readouterr().err
    for level, reason in REASONS.items():
        (line,) = (line for line in told.splitlines() if f": {level} fallback: " in line)
        assert line.strip().startswith("- --strict refuses any fallback, and there is one: ")
        assert reason in line


@pytest.mark.parametrize("in_own_process", [False, True], ids=["here", "own process"])
def test_they_are_counted_for_each_engine_apart(
    installed: Installed, model: str, in_own_process: bool
) -> None:
    for stub in (EXTENSION, AWAY):
        installed.add(stub)
    shown = []
    for options in ({}, {"platform": "cpu", "attention_backend": REFERENCE}):
        with LLM(model, num_kv_blocks=20, in_own_process=in_own_process, **options) as llm:  # type: ignore[arg-type]  # either
            shown.append(generate_latest(llm.metrics).decode())
    assert "dougong_fallback" not in generate_latest(REGISTRY).decode()
    lines = [[line for line in text.splitlines() if not line.startswith("#")] for text in shown]
    assert [len(some) for some in lines] == [3, 1]
    for level, reason in REASONS.items():
        (line,) = (line for line in lines[0] if f'level="{level}"' in line)
        assert line.startswith("dougong_fallback_total{")
        assert 'subject="' in line
        assert reason in line
        assert line.endswith(" 1.0")


async def test_an_engine_of_an_event_loop_counts_its_own(installed: Installed, model: str) -> None:
    installed.add(EXTENSION)
    engine = await AsyncEngine.start(model, platform="cpu", num_kv_blocks=20, in_own_process=False)
    shown = generate_latest(engine.metrics).decode()
    await engine.close()
    assert len([line for line in shown.splitlines() if not line.startswith("#")]) == 2


def test_quantized_weights_that_are_dequantized_are_a_fallback_of_their_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = str(write_tiny_gguf(tmp_path / "tiny.gguf", GGMLQuantizationType.Q5_0))
    with (
        caplog.at_level(logging.WARNING, logger="dougong"),
        LLM(file, platform="cpu", num_kv_blocks=20) as llm,
    ):
        assert len(greedy_tokens(llm)) == 6
        plan, metrics = llm.plan, llm.metrics
    (fallback,) = plan.fallbacks
    assert (fallback.level, fallback.subject) == (FallbackLevel.PATH, "weights q5_0")
    assert "platform cpu has no kernel for q5_0" in fallback.reason
    assert "times as much" in fallback.cost_hint
    assert caplog.messages.count(str(fallback)) == 1
    labels = {"level": "path", "subject": fallback.subject, "reason": fallback.reason}
    assert metrics.get_sample_value("dougong_fallback_total", labels) == 1
    with pytest.raises(ConfigError, match=r"--strict refuses .* path fallback: weights q5_0"):
        LLM(file, platform="cpu", strict=True)


@pytest.mark.parametrize(
    "wish",
    [
        {"custom_ops": "none"},
        {"custom_ops": "-top_k_top_p"},
        {"op": ["top_k_top_p=native"]},
    ],
    ids=str,
)
def test_what_the_user_wants_so_is_no_fallback(
    installed: Installed, model: str, wish: EngineOptions
) -> None:
    """Neither are a platform, a backend and an eager mode that were asked for."""
    for stub in (EXTENSION, AWAY):
        installed.add(stub)
    options: EngineOptions = {
        "platform": "cpu", "attention_backend": REFERENCE, "enforce_eager": True, "strict": True,
        "num_kv_blocks": 20,
    }  # fmt: skip
    wished: EngineOptions = {**options, **wish}
    with LLM(model, **wished) as llm:
        assert len(greedy_tokens(llm)) == 6
        assert llm.plan.fallbacks == ()
    with pytest.raises(ConfigError, match=REASONS[FallbackLevel.OP]):
        LLM(model, **options)


def test_sampling_with_a_kernel_that_does_not_hold_goes_on_natively(
    installed: Installed, model: str
) -> None:
    installed.add(EXTENSION)
    params = SamplingParams(max_tokens=4, temperature=1.0, top_k=3, seed=1, ignore_eos=True)
    with LLM(model, platform="cpu", num_kv_blocks=20) as llm:
        (output,) = llm.generate(prompt_token_ids=[5, 6, 7], sampling_params=params)
    assert len(output.outputs[0].token_ids) == 4
