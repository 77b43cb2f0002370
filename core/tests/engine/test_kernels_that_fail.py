"""What raises at its first use is left out with the reason where it was chosen automatically, and
ends the start where somebody insisted on it: kernels for some token counts, prepared kernels,
attention backends."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from dougong import LLM
from dougong.config import EngineOptions
from dougong.contracts import OpPiece
from dougong.errors import ConfigError
from dougong.planner import FallbackLevel
from tests.support.command_line import run_command
from tests.support.greedy import greedy_tokens
from tests.support.installed_stubs import Installed
from tests.support.stub_attention import (
    REFERENCE,
    StubBackend,
    attention_calls,
    attention_platform,
)
from tests.support.stub_plugins import Stub, count_calls
from tests.support.tiny_models import write_tiny_checkpoint

KERNELS = """
from torch.nn import functional as F

from dougong.contracts import AtLeast, AtMost
from dougong.ops import register_kernel


@register_kernel("linear", name="ext/few", tokens=AtMost(16), priority=100)
def few(x, weight, bias):
    count("ext/few")
    return F.linear(x, weight, bias)


@register_kernel("linear", name="ext/many", tokens=AtLeast(17), priority=100)
def many(x, weight, bias):
    count("ext/many")
    raise RuntimeError("no tile for %d rows" % x.shape[0])


@register_kernel("lm_head", name="ext/prepared", priority=100)
class Prepared:
    def __init__(self, op):
        count("ext/prepared")
        raise MemoryError if not hasattr(op, "weight") else ValueError("cannot pack the head")

    def __call__(self, hidden):
        raise AssertionError("it was never made")
"""
REASONS = {"ext/many": "no tile for ", "ext/prepared": "cannot pack the head"}
FLASH = StubBackend(name="acme/flash", error="the driver is too old")
OPTIONS: EngineOptions = {"platform": "acme", "num_kv_blocks": 20}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def expected(model: str) -> tuple[int, ...]:
    """The answer of a machine where nothing fails; its prompt is longer than 16 tokens."""
    with LLM(model, num_kv_blocks=20, attention_backend=REFERENCE) as llm:
        return greedy_tokens(llm)


@pytest.fixture
def installed(
    expected: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Installed:
    monkeypatch.setenv("STUB_COUNTER", str(tmp_path / "calls"))
    return Installed(tmp_path / "stubs", monkeypatch)


def install_kernels(installed: Installed) -> None:
    installed.add(Stub(distribution="dougong-acme", name="acme"))
    installed.add(Stub(distribution="ext", name="ext", has_platform=False, hooks=KERNELS))


def test_a_kernel_that_fails_at_some_token_counts_loses_those_alone(
    installed: Installed,
    model: str,
    expected: tuple[int, ...],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    install_kernels(installed)
    with caplog.at_level(logging.WARNING, logger="dougong"), LLM(model, **OPTIONS) as llm:
        ran = count_calls(tmp_path / "calls")
        assert greedy_tokens(llm) == expected
        plan = llm.plan
    linear = {one.assignment.pieces for one in plan.ops if one.key == "linear"}
    assert linear == {(OpPiece("ext/few", 16), OpPiece("native"))}
    (head,) = (one for one in plan.ops if one.key == "lm_head")
    assert head.assignment.pieces == (OpPiece("native"),)
    told = {one.name: one.reason for plan in plan.ops for one in plan.passed_over}
    for name, reason in REASONS.items():
        assert told[name].startswith("failed at its first use: ")
        assert reason in told[name]
        assert sum(reason in line for line in caplog.messages) == 1, "warned of once"
    assert {(one.level, one.subject) for one in plan.fallbacks} == {
        (FallbackLevel.OP, "op lm_head"),
        (FallbackLevel.OP, "op linear of 17 and more tokens"),  # few still serves the others
    }
    assert ran["ext/few"]
    assert sum(ran["ext/many"].values()) == 1, "what failed is not tried again"
    assert sum(ran["set_device 0"].values()) == 3, "each failure cost one start of the device"


@pytest.mark.parametrize("name", REASONS)
@pytest.mark.parametrize("command_line", [False, True], ids=["library", "command"])
def test_a_kernel_that_was_asked_for_ends_the_start_with_its_reason(
    installed: Installed,
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    command_line: bool,
) -> None:
    install_kernels(installed)
    key = "linear" if name == "ext/many" else "lm_head"
    off = "-lm_head" if key == "linear" else "-linear"
    if command_line:
        code = run_command("generate", "the", "--model", model, "--platform", "acme",
                           "--op", f"{key}={name}", f"--custom-ops={off}")  # fmt: skip
        assert code == 2
        told = capsys.readouterr().err
    else:
        options: EngineOptions = {**OPTIONS, "op": [f"{key}={name}"], "custom_ops": off}
        with pytest.raises(ConfigError) as caught:
            LLM(model, **options)
        told = str(caught.value)
    assert f"{name} failed at its first use: " in told
    assert REASONS[name] in told
    assert f"It was asked for with --op {key}={name}." in told
    assert sum(count_calls(tmp_path / "calls")["set_device 0"].values()) == 1


@pytest.mark.parametrize("in_own_process", [False, True], ids=["here", "own process"])
def test_an_attention_backend_that_fails_makes_way_for_the_next(
    installed: Installed,
    model: str,
    expected: tuple[int, ...],
    tmp_path: Path,
    in_own_process: bool,
) -> None:
    installed.add(attention_platform("acme", FLASH))
    with LLM(model, in_own_process=in_own_process, **OPTIONS) as llm:
        assert greedy_tokens(llm) == expected
        report = llm.report
    assert report.attention_backends == {REFERENCE: 2}
    (passed,) = report.plan.attention[0].passed_over
    assert passed.name == "acme/flash"
    assert passed.reason == (
        "failed at its first use: forward() raised RuntimeError: the driver is too old"
    )
    (fallback,) = report.plan.fallbacks
    assert fallback.level is FallbackLevel.PATH
    assert "the driver is too old" in fallback.reason
    assert any("1 fallback: attention" in line for line in report.lines())
    assert attention_calls(tmp_path / "calls") == {"acme/flash prefill"}
    assert sum(count_calls(tmp_path / "calls")["set_device 0"].values()) == 2


@pytest.mark.parametrize(
    ("wish", "insisted"),
    [
        (
            {"attention_backend": "acme/flash"},
            "It was asked for with --attention-backend acme/flash.",
        ),
        ({"strict": True}, "--strict refuses to go on without it."),
    ],
    ids=["asked for", "strict"],
)
def test_an_attention_backend_that_somebody_insists_on_ends_the_start_with_its_reason(
    installed: Installed, model: str, tmp_path: Path, wish: EngineOptions, insisted: str
) -> None:
    installed.add(attention_platform("acme", FLASH))
    options: EngineOptions = {**OPTIONS, **wish}
    with pytest.raises(ConfigError) as caught:
        LLM(model, **options)
    told = str(caught.value)
    assert "acme/flash failed at its first use: forward() raised RuntimeError" in told
    assert "the driver is too old" in told
    assert insisted in told
    assert sum(count_calls(tmp_path / "calls")["set_device 0"].values()) == 1


def test_a_saved_plan_insists_on_what_it_names(
    installed: Installed, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody knew of the failure when the plan was saved, since nothing ran then."""
    installed.add(attention_platform("acme", FLASH))
    path = tmp_path / "plan.json"
    saved = ("explain", model, "--platform", "acme", "--save", str(path))
    assert run_command(*saved) == 0
    assert json.loads(path.read_text())["attention"][0]["assignment"]["backend"] == "acme/flash"
    capsys.readouterr()
    assert run_command("generate", "the", "--model", model, "--plan", str(path)) == 2
    told = capsys.readouterr().err
    assert "acme/flash failed at its first use: " in told
    assert f"It was asked for with --plan {path}." in told


def test_where_everything_fails_the_start_ends_with_every_reason(
    installed: Installed, model: str
) -> None:
    other = StubBackend(name="acme/other", error="the other gives up, too")
    installed.add(attention_platform("acme", FLASH, other, with_reference=False))
    with pytest.raises(ConfigError) as caught:
        LLM(model, **OPTIONS)
    told = str(caught.value)
    for name, reason in (("flash", "the driver is too old"), ("other", "the other gives up, too")):
        assert (
            f"acme/{name}: failed at its first use: forward() raised RuntimeError: {reason}" in told
        )
