"""Kernel libraries that are missing, and registrations that this model cannot use: each
implementation is passed over with the reason, in the process that tried."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dougong import LLM
from dougong.config import EngineOptions
from dougong.errors import ConfigError
from dougong.planner import FallbackLevel
from tests.support.command_line import run_command
from tests.support.greedy import greedy_tokens
from tests.support.installed_stubs import Installed
from tests.support.stub_attention import StubBackend, attention_platform
from tests.support.stub_plugins import Stub, count_calls
from tests.support.tiny_models import write_tiny_checkpoint

OPTIONS: EngineOptions = {"platform": "acme", "num_kv_blocks": 20}
FLASH = StubBackend(name="acme/flash")
WHY = "libacme.so.7: cannot open shared object file"
NEEDS_LIBRARY = """
from dougong.contracts import AtLeast, Needs
from dougong.ops import CustomOp, LayerNorm, register_kernel

AcmeFlash.library = "acme-kernels"


@register_kernel("lm_head", name="acme/head", when=Needs(library="acme-kernels"))
def head(hidden, weight):
    raise AssertionError("its library is missing")


@register_kernel("greedy_sample", name="acme/sample", when=Needs(library="acme-kernels"))
def sample(logits):
    raise AssertionError("its library is missing")


@register_kernel("embedding", name="acme/embedding")
class Embedding:
    def __init__(self, op):
        self._forward = op.forward_native

    def __call__(self, token_ids):
        count("acme/embedding")
        return self._forward(token_ids)


@register_kernel("embedding", name="acme/huge", when=Needs(vocab_size=AtLeast(1 << 20)))
def huge(token_ids, weight):
    raise AssertionError("its condition holds nowhere")


@CustomOp.register_oot("layer_norm")
class Norm(LayerNorm):
    def forward_oot(self, x):
        raise AssertionError("no Llama has this op")
"""
IMPORTS = f"""
    def import_kernels(self):
        from dougong.contracts import KernelReport

        count("import_kernels")
        return KernelReport(loaded=("acme-more 1.0",), missing={{{{"acme-kernels": {WHY!r}}}}})
"""
LIBRARY_MISSING = f"needs acme-kernels: {WHY}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("model")))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    monkeypatch.setenv("STUB_COUNTER", str(tmp_path / "calls"))
    return Installed(tmp_path / "stubs", monkeypatch)


def with_missing_library() -> Stub:
    stub = attention_platform("acme", FLASH)
    assert stub.platform_body is not None
    return replace(
        stub, platform_body=stub.platform_body + IMPORTS, hooks=stub.hooks + NEEDS_LIBRARY
    )


@pytest.mark.parametrize("in_own_process", [False, True], ids=["here", "own process"])
def test_each_implementation_whose_library_is_missing_is_passed_over_with_that_reason(
    installed: Installed,
    model: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    in_own_process: bool,
) -> None:
    installed.add(with_missing_library())
    with (
        caplog.at_level(logging.WARNING, logger="dougong"),
        LLM(model, in_own_process=in_own_process, **OPTIONS) as llm,
    ):
        assert len(greedy_tokens(llm)) == 6
        report = llm.report
    plan = report.plan
    assert plan.kernels_loaded == ("acme-more 1.0",)
    assert plan.kernels_missing == {"acme-kernels": WHY}
    told = {one.name: one.reason for op in plan.ops for one in op.passed_over}
    told |= {one.name: one.reason for kind in plan.attention for one in kind.passed_over}
    for name in ("acme/head", "acme/sample", "acme/flash"):
        assert told[name] == LIBRARY_MISSING
    levels = Counter(one.level for one in plan.fallbacks if LIBRARY_MISSING in one.reason)
    assert levels == {FallbackLevel.OP: 2, FallbackLevel.PATH: 1}
    (sentence,) = (line for line in report.warnings() if WHY in line)
    for subject in ("op lm_head", "op greedy_sample", "attention"):
        assert subject in sentence
    if not in_own_process:
        assert [line for line in caplog.messages if WHY in line] == [sentence]
    calls = count_calls(tmp_path / "calls")
    (worker,) = calls["import_kernels"]
    assert (worker == os.getpid()) is not in_own_process
    assert set(calls["acme/embedding"]) == {worker}


def test_strict_refuses_them_once_the_library_was_tried(installed: Installed, model: str) -> None:
    installed.add(with_missing_library())
    options: EngineOptions = {**OPTIONS, "strict": True}
    with pytest.raises(ConfigError) as caught:
        LLM(model, **options)
    problems = [one for one in caught.value.problems if LIBRARY_MISSING in one]
    assert len(problems) == 3


@pytest.mark.parametrize(
    "wish",
    [{"attention_backend": "acme/flash"}, {"op": ["lm_head=acme/head"]},
     {"custom_ops": "+greedy_sample"}],
    ids=["backend", "op", "required"],
)  # fmt: skip
def test_what_was_asked_for_and_lacks_its_library_is_refused_with_that_reason(
    installed: Installed, model: str, wish: EngineOptions
) -> None:
    installed.add(with_missing_library())
    options: EngineOptions = {**OPTIONS, **wish}
    with pytest.raises(ConfigError) as caught:
        LLM(model, **options)
    assert LIBRARY_MISSING in str(caught.value)


def test_what_is_registered_and_matches_nothing_is_told_and_is_no_fault(
    installed: Installed, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`huge` is no fallback either: another implementation runs for its op."""
    installed.add(with_missing_library())
    with LLM(model, **OPTIONS) as llm:
        report = llm.report
    assert not [one for one in report.plan.fallbacks if "acme/huge" in one.reason]
    unmatched = {one.name: one.reason for one in report.plan.unmatched}
    assert "this model has no op layer_norm" in unmatched["acme/Norm"]
    assert unmatched["acme/huge"].startswith("vocab_size 288; takes at least 1048576")
    assert "acme/embedding" not in unmatched
    (line,) = (line for line in report.lines() if "of no use to this model" in line)
    assert "acme/Norm" in line
    assert "acme/huge" in line
    assert "acme/head" not in line, "its library is missing, which is told once"
    assert run_command("explain", model, "--platform", "acme", "--json") == 0
    shown = json.loads(capsys.readouterr().out)["unmatched"]
    assert {one["name"]: one["reason"] for one in shown} == unmatched
