"""A model starts with out-of-tree classes that are built otherwise than the ops they replace."""

from __future__ import annotations

from pathlib import Path

import pytest

from dougong import LLM
from tests.support.greedy import greedy_tokens
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub
from tests.support.tiny_models import write_tiny_checkpoint

HOOKS = """
from torch.nn import functional as F

from dougong.ops import AtLeast, CustomOp, FusedAddRMSNorm, GateUpAct, Linear, LMHead, Needs
from dougong.ops import RMSNorm, register_kernel


@CustomOp.register_oot("fused_add_rms_norm")
class TwoSteps(FusedAddRMSNorm):
    # Has an op more than the core's, which gets its weight once that is loaded.
    def __init__(self, hidden_size, eps, dtype):
        super().__init__(hidden_size, eps, dtype)
        self.inner = RMSNorm(hidden_size, eps, dtype)
        del self.inner.weight

    def post_load(self):
        self.inner.weight = self.norm.weight

    def forward_oot(self, x, residual):
        total = x if residual is None else x + residual
        return self.inner(total), total


@CustomOp.register_oot("gate_up_act")
class WithoutActivation(GateUpAct):
    # Leaves an op of the core's out.
    def __init__(self, hidden_size, intermediate_size, activation, has_bias, dtype):
        super().__init__(hidden_size, intermediate_size, activation, has_bias, dtype)
        del self.act

    def forward_oot(self, x):
        gate, up = self.linear(x).chunk(2, dim=-1)
        return F.silu(gate) * up


@CustomOp.register_oot("lm_head", when=Needs(library="acme-kernels"))
class Head(LMHead):
    def __init__(self, vocab_size, hidden_size, dtype, embedding=None):
        raise AssertionError("its library is missing")

    def forward_oot(self, hidden):
        raise AssertionError("its library is missing")


@CustomOp.register_oot("linear", when=Needs(in_features=AtLeast(96)))
class WideLinear(Linear):
    def __init__(self, in_features, out_features, has_bias, dtype):
        assert in_features >= 96, "made where its condition does not hold"
        super().__init__(in_features, out_features, has_bias, dtype)

    def forward_oot(self, x):
        return F.linear(x, self.weight, self.bias)
"""
NUM_NORMS, NUM_LAYERS = 5, 2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("model")))


@pytest.mark.parametrize("platform", ["bare", "cpu"])
def test_the_model_starts_and_answers_as_it_does_without_them(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    Installed(tmp_path / "bare", monkeypatch).add(Stub(distribution="dougong-bare", name="bare"))
    with LLM(model, platform=platform, num_kv_blocks=20) as llm:
        expected = greedy_tokens(llm)
    stub = Stub(distribution="dougong-own", name="own", has_platform=False, hooks=HOOKS)
    Installed(tmp_path / "own", monkeypatch).add(stub)
    with LLM(model, platform=platform, num_kv_blocks=20) as llm:
        assert greedy_tokens(llm) == expected
        ran, plan = llm.report.implementations, llm.plan
    assert ran["fused_add_rms_norm"] == {"own/TwoSteps": NUM_NORMS}
    assert ran["gate_up_act"] == {"own/WithoutActivation": NUM_LAYERS}
    assert not {"rms_norm", "silu_and_mul"} & ran.keys()
    assert ran["linear"]["own/WideLinear"] == NUM_LAYERS  # the others are narrow
    assert sum(ran["linear"].values()) == 3 * NUM_LAYERS
    assert "own/Head" not in ran["lm_head"]
    (head,) = (one for one in plan.ops if one.key == "lm_head")
    told = {one.name: one.reason for one in head.passed_over}
    assert told["own/Head"].startswith("needs acme-kernels")
