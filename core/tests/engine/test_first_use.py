"""Real implementations that fail when they are first used: left out, or the end of the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from dougong import LLM, SamplingParams
from dougong.config import EngineArgs
from dougong.engine.startup import start_engine
from dougong.errors import ConfigError
from dougong.planner import FallbackLevel
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub
from tests.support.tiny_models import write_tiny_checkpoint

HOOKS = """
from dougong.ops import CustomOp, GreedySample, RotaryEmbedding, register_kernel


@register_kernel("lm_head", name="bad/head", priority=100)
def head(hidden, weight):
    raise RuntimeError("the vendor's compiler gave up")


@register_kernel("linear", name="bad/packed", priority=100)
class Packed:
    def __init__(self, op):
        raise RuntimeError("cannot pack")

    def __call__(self, x):
        raise AssertionError("it was never made")


@CustomOp.register_oot("rotary_embedding")
class BadRotary(RotaryEmbedding):
    def forward_oot(self, positions, q, k):
        raise RuntimeError("no such instruction")


@CustomOp.register_oot("greedy_sample", name="bad/sample")
class BadSample(GreedySample):
    def forward_oot(self, logits):
        raise RuntimeError("not for so few rows")
"""
BAD = {
    "bad/head": "the vendor's compiler gave up",
    "bad/packed": "cannot pack",
    "bad/BadRotary": "no such instruction",
    "bad/sample": "not for so few rows",
}
GREEDY = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_tiny_checkpoint(tmp_path / "model"))


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = Stub(distribution="dougong-bad", name="bad", has_platform=False, hooks=HOOKS)
    Installed(folder, monkeypatch).add(stub)


def answer(llm: LLM) -> list[int]:
    (output,) = llm.generate(prompt_token_ids=[5, 6, 7], sampling_params=GREEDY)
    return list(output.outputs[0].token_ids)


@pytest.mark.parametrize("platform", ["bare", "cpu"])
def test_the_engine_starts_without_all_that_fails_and_answers_as_if_it_were_not_installed(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    Installed(tmp_path / "bare", monkeypatch).add(Stub(distribution="dougong-bare", name="bare"))
    with LLM(model, platform=platform, num_kv_blocks=20) as llm:
        expected, without = answer(llm), llm.plan
    install(tmp_path / "bad", monkeypatch)
    with LLM(model, platform=platform, num_kv_blocks=20) as llm:
        assert answer(llm) == expected
        assert llm.plan.implementations() == without.implementations()
        told = {one.name: one.reason for plan in llm.plan.ops for one in plan.passed_over}
        for name, reason in BAD.items():
            assert reason in told[name]
        if platform == "bare":
            fallen = [one for one in llm.plan.fallbacks if one.level is FallbackLevel.OP]
            assert len(fallen) == len(BAD)


def test_what_the_user_chose_stops_the_start_with_its_own_reason(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "bad", monkeypatch)
    args = EngineArgs(model=model, platform="cpu", op=["lm_head=bad/head"], num_kv_blocks=20)
    with pytest.raises(ConfigError, match=r"compiler gave up\. It was asked for with --op lm_head"):
        start_engine(args)
