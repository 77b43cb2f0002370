"""Scenario A08: a head size that a backend does not take is refused early, or served by another.

What a backend claims is tried: a real forward at every size.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from dougong import LLM
from dougong.config import EngineArgs
from dougong.contracts import AttentionRequest
from dougong.cpu.attention import NativeAttentionBackend
from dougong.engine.planning import explain
from dougong.planner import FallbackLevel
from dougong.reference import ReferenceAttentionBackend
from tests.support.command_line import run_command
from tests.support.greedy import greedy_tokens
from tests.support.installed_stubs import Installed
from tests.support.paged import PagedCase, dense_attention
from tests.support.stub_attention import (
    REFERENCE,
    StubBackend,
    attention_calls,
    attention_platform,
)
from tests.support.stub_plugins import count_calls
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

SIZES = (64, 80, 96, 128, 224, 256)
TAKEN = (64, 128)
FLASH = StubBackend(
    name="acme/flash", limits='dtypes=frozenset({"float32"}), head_sizes=frozenset({64, 128})'
)
NATIVE = "cpu/native"


def config_of(head_dim: int) -> dict[str, object]:
    return tiny_config(head_dim=head_dim, num_attention_heads=2, num_key_value_heads=1)


def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the platform; a line for each of its calls goes into the file."""
    Installed(tmp_path / "stubs", monkeypatch).add(attention_platform("acme", FLASH))
    monkeypatch.setenv("STUB_COUNTER", str(tmp_path / "calls"))
    return tmp_path / "calls"


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return install(tmp_path, monkeypatch)


def config_alone(folder: Path, head_dim: int) -> str:
    """A folder that has nothing else of the checkpoint."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config_of(head_dim)))
    return str(folder)


@pytest.mark.parametrize("command", ["generate", "explain"])
@pytest.mark.parametrize("head_dim", [size for size in SIZES if size not in TAKEN])
def test_forced_it_is_refused_from_the_config_alone_with_every_candidates_reason(
    counter: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    head_dim: int,
    command: str,
) -> None:
    model = config_alone(tmp_path / "model", head_dim)
    prompt = ["the"] if command == "generate" else []
    code = run_command(
        command, *prompt, "--model", model, "--platform", "acme",
        "--attention-backend", "acme/flash",
    )  # fmt: skip
    told = capsys.readouterr().err
    assert code == 2
    assert f"attention_backend=acme/flash cannot serve attention of head_dim={head_dim}" in told
    assert f"acme/flash: head size {head_dim}; takes 64, 128" in told
    assert f"{REFERENCE} (not asked for): would do" in told
    assert f"Instead: attention_backend={REFERENCE}." in told
    calls = count_calls(counter)
    assert "platform imported" in calls
    assert not [what for what in calls if what.startswith("set_device")], "a device was opened"
    assert {pid for counts in calls.values() for pid in counts} == {os.getpid()}
    assert os.listdir(model) == ["config.json"]


@pytest.mark.parametrize("head_dim", TAKEN)
def test_forced_with_a_size_it_takes_the_missing_weights_are_what_is_missed(
    counter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], head_dim: int
) -> None:
    """So the refusals above came before anybody looked at weights, and of the size alone."""
    model = config_alone(tmp_path / "model", head_dim)
    options = ("--model", model, "--platform", "acme", "--attention-backend", "acme/flash")
    assert run_command("generate", "the", *options) == 2
    told = capsys.readouterr().err
    assert "head size" not in told
    assert "safetensors" in told
    assert run_command("explain", *options) == 0


@pytest.mark.parametrize("head_dim", SIZES)
def test_automatically_a_capable_one_is_chosen_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head_dim: int
) -> None:
    name = "acme/flash" if head_dim in TAKEN else REFERENCE
    model = str(write_tiny_checkpoint(tmp_path / "model", config_of(head_dim)))
    with LLM(model, platform="cpu", num_kv_blocks=20) as llm:
        expected = greedy_tokens(llm)
    counter = install(tmp_path, monkeypatch)
    said = explain(EngineArgs(model=model, platform="acme"))
    assert said.attention_backends() == {name: 2}
    with LLM(model, platform="acme", num_kv_blocks=20) as llm:
        assert greedy_tokens(llm) == expected
        report = llm.report
    assert report.attention_backends == {name: 2}
    assert any(name in line for line in report.lines())
    passed = {one.name: one.reason for one in report.plan.attention[0].passed_over}
    fallbacks = [one for one in report.plan.fallbacks if one.level is FallbackLevel.PATH]
    if name == REFERENCE:
        why = f"head size {head_dim}; takes 64, 128 (head_dim of the checkpoint's config)"
        assert passed == {"acme/flash": why}
        assert [one.reason for one in fallbacks] == [f"{REFERENCE} runs, not acme/flash: {why}"]
        assert attention_calls(counter) == set()
    else:
        assert passed == {REFERENCE: "not asked: acme/flash comes first"}
        assert fallbacks == []
        assert attention_calls(counter) == {"acme/flash prefill", "acme/flash decode"}


def claimed_by_native() -> list[int]:
    backend, sizes = NativeAttentionBackend(), range(1, 513)
    return [
        size
        for size in sizes
        if backend.supports(
            AttentionRequest(num_heads=4, num_kv_heads=2, head_dim=size, dtype="float32",
                             kv_dtype="float32", block_size=16)
        )
    ]  # fmt: skip


def test_the_native_backend_claims_every_size_of_this_scenario() -> None:
    assert set(SIZES) < set(claimed_by_native())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("head_dim", claimed_by_native())
def test_every_size_that_the_native_backend_claims_is_computed(
    head_dim: int, dtype: torch.dtype
) -> None:
    case = PagedCase(query_lens=(20, 1), seq_lens=(20, 37), head_dim=head_dim, dtype=dtype)
    out = case.run(NativeAttentionBackend())
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2  # 8 significant bits, and a sum of them
    torch.testing.assert_close(out.double(), dense_attention(case), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("head_dim", [1, 8, 24, *SIZES, 320, 576])
def test_plain_torch_which_claims_any_size_computes_it(head_dim: int) -> None:
    case = PagedCase(query_lens=(20, 1), seq_lens=(20, 37), head_dim=head_dim)
    out = case.run(ReferenceAttentionBackend())
    torch.testing.assert_close(out.double(), dense_attention(case), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("head_dim", SIZES)
def test_both_backends_of_the_cpu_serve_a_model_of_that_size_when_asked_to(
    tmp_path: Path, head_dim: int
) -> None:
    model = str(write_tiny_checkpoint(tmp_path / "model", config_of(head_dim)))
    answers = {}
    for name in (NATIVE, REFERENCE):
        with LLM(model, platform="cpu", attention_backend=name, num_kv_blocks=20) as llm:
            assert llm.report.attention_backends == {name: 2}
            answers[name] = greedy_tokens(llm)
    assert answers[NATIVE] == answers[REFERENCE]
