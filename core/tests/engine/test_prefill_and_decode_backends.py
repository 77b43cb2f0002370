"""Two attention backends that share a layout serve one layer; others are refused with both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dougong import LLM, SamplingParams
from dougong.config import EngineOptions
from dougong.errors import ConfigError
from tests.support.command_line import run_command
from tests.support.greedy import greedy_tokens
from tests.support.installed_stubs import Installed
from tests.support.stub_attention import (
    REFERENCE,
    StubBackend,
    attention_calls,
    attention_platform,
)
from tests.support.stub_plugins import count_calls
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

PREFILL = StubBackend(
    name="acme/p",
    limits='dtypes=frozenset({"float32"}), phases=frozenset({AttentionPhase.PREFILL})',
)
DECODE = StubBackend(
    name="acme/d",
    limits='dtypes=frozenset({"float32"}), phases=frozenset({AttentionPhase.DECODE})',
)
OTHER = StubBackend(name="acme/other", layout='name="other", alignment_bytes=64')
PAIR = "prefill=acme/p,decode=acme/d"
OWN_CALLS = {"acme/p prefill", "acme/d decode"}
PROMPTS = [[(7 * at + 13 * start + 5) % 250 for at in range(5 + 9 * start)] for start in range(5)]
SIZES: dict[str, EngineOptions] = {
    "whole prompts": {},
    "chunks beside decodes": {"max_num_batched_tokens": 11, "max_num_seqs": 3},
    "chunks of one token": {"max_num_batched_tokens": 5, "max_num_seqs": 5},
    "preempted": {"num_kv_blocks": 8, "max_num_seqs": 5},
}


def answers(llm: LLM) -> list[list[int]]:
    """Of prompts that come at once and end at different times."""
    params = [
        SamplingParams(max_tokens=60 - 4 * index, temperature=0.0, ignore_eos=True)
        for index in range(len(PROMPTS))
    ]
    outputs = llm.generate(prompt_token_ids=PROMPTS, sampling_params=params)
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def expected(model: str) -> list[list[int]]:
    """Of one backend."""
    with LLM(model, platform="cpu", attention_backend=REFERENCE, num_kv_blocks=100) as llm:
        return answers(llm)


@pytest.fixture
def installed(
    expected: list[list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Installed:
    monkeypatch.setenv("STUB_COUNTER", str(tmp_path / "calls"))
    return Installed(tmp_path / "stubs", monkeypatch)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("wish", [PAIR, None], ids=["asked for", "automatic"])
def test_a_pair_gives_the_tokens_of_one_backend(
    installed: Installed,
    model: str,
    expected: list[list[int]],
    tmp_path: Path,
    sizes: str,
    wish: str | None,
) -> None:
    installed.add(attention_platform("acme", PREFILL, DECODE, with_reference=wish is not None))
    options: EngineOptions = {
        "platform": "acme", "num_kv_blocks": 100, "attention_backend": wish, **SIZES[sizes],
    }  # fmt: skip
    with LLM(model, **options) as llm:
        assert answers(llm) == expected
        report, stats = llm.report, llm.stats()
    assert (stats.scheduler.num_preemptions > 0) is (sizes == "preempted")
    assert report.attention_backends == {"acme/p": 2, "acme/d": 2}
    (kind,) = report.plan.attention
    assert (kind.assignment.backend, kind.assignment.decode_backend) == ("acme/p", "acme/d")
    assert report.plan.fallbacks == ()
    assert any("acme/p x 2, acme/d x 2" in line for line in report.lines())
    assert attention_calls(tmp_path / "calls") == OWN_CALLS, "each saw its own kind of step alone"


def test_one_backend_of_both_phases_may_serve_half_of_a_layer(
    installed: Installed, model: str, expected: list[list[int]], tmp_path: Path
) -> None:
    installed.add(attention_platform("acme", DECODE))
    wish = f"prefill={REFERENCE},decode=acme/d"
    with LLM(model, platform="acme", attention_backend=wish, num_kv_blocks=100) as llm:
        assert answers(llm) == expected
        assert llm.report.attention_backends == {REFERENCE: 2, "acme/d": 2}
    assert attention_calls(tmp_path / "calls") == {"acme/d decode"}


def test_two_that_store_differently_are_refused_with_both_layouts_from_the_config_alone(
    installed: Installed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed.add(attention_platform("acme", PREFILL, OTHER))
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(tiny_config()))
    code = run_command("generate", "the", "--model", str(folder), "--platform", "acme",
                       "--attention-backend", "prefill=acme/p,decode=acme/other")  # fmt: skip
    told = capsys.readouterr().err
    assert code == 2
    assert "acme/p with acme/other: they share no layout" in told
    assert "acme/p has tokens-heads-dim (k [16, 2, 16] float32, v [16, 2, 16] float32)" in told
    assert "acme/other has other (k [16, 2, 16] float32" in told
    assert "aligned to 64 bytes" in told
    assert not [what for what in count_calls(tmp_path / "calls") if what.startswith("set_device")]


def test_the_two_backends_of_the_cpu_store_differently(model: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LLM(model, platform="cpu", attention_backend=f"prefill=cpu/native,decode={REFERENCE}")
    told = str(caught.value)
    assert "cpu/native has heads-tokens-dim (k [2, 16, 16] float32" in told
    assert f"{REFERENCE} has tokens-heads-dim (k [16, 2, 16] float32" in told


def test_backends_in_each_others_place_are_refused_with_what_they_serve(
    installed: Installed, model: str
) -> None:
    installed.add(attention_platform("acme", PREFILL, DECODE))
    with pytest.raises(ConfigError) as caught:
        LLM(model, platform="acme", attention_backend="prefill=acme/d,decode=acme/p")
    told = str(caught.value)
    assert "acme/d for prefill: prefill steps; takes decode" in told
    assert "acme/p for decode: decode steps; takes prefill" in told
    assert f"Instead: attention_backend={REFERENCE}" in told


def test_of_a_pair_that_was_asked_for_the_one_that_fails_ends_the_start(
    installed: Installed, model: str
) -> None:
    broken = StubBackend(name="acme/d", limits=DECODE.limits, error="no decode today")
    installed.add(attention_platform("acme", PREFILL, broken))
    with pytest.raises(ConfigError) as caught:
        LLM(model, platform="acme", attention_backend=PAIR, num_kv_blocks=100)
    told = str(caught.value)
    assert "acme/d failed at its first use" in told
    assert "no decode today" in told
    assert f"--attention-backend {PAIR}" in told


def test_of_a_pair_that_was_found_the_one_that_fails_takes_the_other_with_it(
    installed: Installed, model: str, expected: list[list[int]]
) -> None:
    broken = StubBackend(name="acme/d", limits=DECODE.limits, error="no decode today")
    installed.add(attention_platform("acme", PREFILL, broken))
    with LLM(model, platform="acme", num_kv_blocks=100) as llm:
        assert answers(llm) == expected
        first = greedy_tokens(llm)
        assert llm.report.attention_backends == {REFERENCE: 2}
    assert len(first) == 6
