"""An implementation that raises at many tokens only ends the engine, and is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from dougong import LLM, SamplingParams
from dougong.config import EngineOptions
from dougong.errors import EngineDeadError
from tests.support.installed_stubs import Installed
from tests.support.stub_attention import StubBackend, attention_platform
from tests.support.stub_plugins import Stub
from tests.support.tiny_models import write_tiny_checkpoint

FUNCTION = """
from torch.nn import functional as F

from dougong.ops import register_kernel


@register_kernel("linear", name="ext/function", priority=100)
def function(x, weight, bias):
    if x.shape[0] > 30:
        raise RuntimeError("no tile for %d rows" % x.shape[0])
    return F.linear(x, weight, bias)
"""
PREPARED = """
from dougong.ops import register_kernel


@register_kernel("linear", name="ext/prepared", priority=100)
class Prepared:
    def __init__(self, op):
        self.op = op

    def __call__(self, x):
        if x.shape[0] > 30:
            raise RuntimeError("no tile for %d rows" % x.shape[0])
        return self.op.forward_native(x)
"""
OOT = """
from dougong.ops import CustomOp
from dougong.ops.catalog import OPS

SiluAndMul = OPS["silu_and_mul"]


@CustomOp.register_oot("silu_and_mul", name="ext/class")
class Ours(SiluAndMul):
    def forward_oot(self, x):
        if x.shape[0] > 30:
            raise RuntimeError("no tile for %d rows" % x.shape[0])
        return self.forward_native(x)
"""
STUBS = {
    "ext/function, which computes op linear. Leave it out with --op linear=native": FUNCTION,
    "ext/prepared, which computes op linear. Leave it out with --op linear=native": PREPARED,
    "ext/class, which computes op silu_and_mul. Leave it out with --op silu_and_mul=native": OOT,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("model")))


def run_long_prompt(llm: LLM) -> str:
    with llm, pytest.raises(EngineDeadError) as caught:
        llm.generate(prompt_token_ids=[5] * 40, sampling_params=SamplingParams(max_tokens=2))
    return str(caught.value)


@pytest.mark.parametrize("told", STUBS)
def test_a_kernel_that_raises_at_many_tokens_is_named_with_what_to_do_without(
    told: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Installed(tmp_path / "stubs", monkeypatch).add(
        Stub(distribution="ext", name="ext", has_platform=False, hooks=STUBS[told])
    )
    options: EngineOptions = {"platform": "cpu", "num_kv_blocks": 20, "op": ["gate_up_act=native"]}
    message = run_long_prompt(LLM(model, **options))
    assert "no tile for 40 rows" in message
    assert f"It came out of {told}" in message


@pytest.mark.parametrize("in_own_process", [False, True], ids=["here", "own process"])
def test_a_backend_that_raises_is_named_from_another_process_too(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_own_process: bool
) -> None:
    late = attention_platform("acme", StubBackend(name="acme/flash", error="no tile"))
    hooks = late.hooks.replace("if 'no tile':", "if q.shape[0] == 40:")
    assert hooks != late.hooks
    monkeypatch.setenv("STUB_COUNTER", str(tmp_path / "calls"))
    Installed(tmp_path / "stubs", monkeypatch).add(
        Stub(distribution="acme", name="acme", platform_body=late.platform_body, hooks=hooks)
    )
    message = run_long_prompt(
        LLM(model, platform="acme", num_kv_blocks=20, in_own_process=in_own_process)
    )
    assert "no tile" in message
    assert "It came out of attention backend acme/flash in layer 0" in message


def test_a_step_that_fails_in_the_core_blames_nobody(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(model, platform="cpu", num_kv_blocks=20)

    def fail(*args: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr("dougong.reference.ReferenceWorker.execute_model", fail)
    message = run_long_prompt(llm)
    assert "out of luck" in message
    assert "It came out of" not in message
