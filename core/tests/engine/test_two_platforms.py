"""Two engines on two platforms in one process: each runs its own platform's ops and no other's."""

from __future__ import annotations

from pathlib import Path

import pytest

from dougong import LLM, SamplingParams
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub, count_calls
from tests.support.tiny_models import write_tiny_checkpoint

HOOKS = """
from torch.nn import functional as F

from dougong.ops import CustomOp, FusedAddRMSNorm, register_kernel


@CustomOp.register_oot("fused_add_rms_norm")
class OwnNorm(FusedAddRMSNorm):
    def forward_oot(self, x, residual):
        count("norm of NAME")
        total = x if residual is None else x + residual
        return F.rms_norm(total, self.weight.shape, self.weight, self.eps), total


@register_kernel("lm_head", name="NAME/head")
def head(hidden, weight):
    count("head of NAME")
    return F.linear(hidden, weight).float()
"""
GREEDY = SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True)
PROMPT = [5, 6, 7, 8]


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each call of an override."""
    installed = Installed(tmp_path / "stubs", monkeypatch)
    for name in ("one", "two"):
        hooks = HOOKS.replace("NAME", name)
        installed.add(Stub(distribution=f"dougong-{name}", name=name, hooks=hooks))
    monkeypatch.setenv("STUB_COUNTER", str(tmp_path / "calls"))
    return tmp_path / "calls"


def calls(counter: Path) -> set[str]:
    found = {what for what in count_calls(counter) if " of " in what}
    counter.unlink(missing_ok=True)
    return found


def test_no_engine_sees_an_override_of_another(counter: Path, tmp_path: Path) -> None:
    model = str(write_tiny_checkpoint(tmp_path / "model"))
    with LLM(model, platform="one", num_kv_blocks=20) as one:
        stream = one.stream(PROMPT, GREEDY)
        next(stream)  # the other is built in the middle of a request
        with LLM(model, platform="two", num_kv_blocks=20) as two:
            calls(counter)
            expected = list(stream)[-1].outputs[0].token_ids
            assert calls(counter) == {"norm of one", "head of one"}
            for llm, name in ((two, "two"), (one, "one")):
                (output,) = llm.generate(prompt_token_ids=PROMPT, sampling_params=GREEDY)
                assert calls(counter) == {f"norm of {name}", f"head of {name}"}
                assert output.outputs[0].token_ids == expected
                ran = llm.plan.implementations()
                assert set(ran["lm_head"]) == {f"{name}/head"}
                assert set(ran["fused_add_rms_norm"]) == {f"{name}/OwnNorm"}
