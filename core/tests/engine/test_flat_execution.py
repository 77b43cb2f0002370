"""Straight-line code of a model's list runs by default, and gives what the modules give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dougong import LLM, SamplingParams
from dougong.config import EngineArgs
from dougong.engine.planning import explain
from dougong.errors import ConfigError
from dougong.execution import FlatExecutable
from dougong.models import CausalLM
from dougong.models.llama import LlamaForCausalLM
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

PROMPTS = [[(7 * at + 13 * start + 5) % 250 for at in range(17 + 9 * start)] for start in range(3)]
ASKED = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True, logprobs=2)
ODD_MODEL = """
from dougong.contracts import ModelRegistration, hookimpl
from dougong.models.llama import LlamaForCausalLM


class Doubled(LlamaForCausalLM):
    def forward(self, token_ids, positions, step):
        return super().forward(token_ids, positions, step) * 2


@hookimpl
def dougong_register_models():
    return [ModelRegistration("DoubledForCausalLM", target=f"{__name__}:Doubled")]
"""
ODD = Stub(distribution="odd", name="odd", has_platform=False, hooks=ODD_MODEL)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("model")))


@pytest.fixture
def odd_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    Installed(tmp_path / "stubs", monkeypatch).add(ODD)
    config = tiny_config(architectures=["DoubledForCausalLM"])
    return str(write_tiny_checkpoint(tmp_path / "model", config))


def answers(llm: LLM) -> list[Any]:
    outputs = llm.generate(prompt_token_ids=PROMPTS, sampling_params=ASKED)
    return [(one.outputs[0].token_ids, one.outputs[0].logprobs) for one in outputs]


def refuse_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may call the model's own forward on tensors with values."""
    run: Callable[..., torch.Tensor] = LlamaForCausalLM.forward

    def forward(self: CausalLM, token_ids: torch.Tensor, *args: Any) -> torch.Tensor:
        assert token_ids.is_meta, "the modules ran"
        return run(self, token_ids, *args)

    monkeypatch.setattr(LlamaForCausalLM, "forward", forward)


def test_the_list_runs_by_default_and_gives_the_very_same(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LLM(model, num_kv_blocks=40, execution="eager") as llm:
        assert llm.plan.execution.name == "eager"
        expected = answers(llm)
    refuse_modules(monkeypatch)
    with LLM(model, num_kv_blocks=40) as llm:
        assert llm.plan.execution.name == "flat"
        assert answers(llm) == expected


def test_eager_that_was_asked_for_runs_the_modules(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard of the test above can fail."""
    refuse_modules(monkeypatch)
    with pytest.raises(Exception, match="the modules ran"):
        LLM(model, num_kv_blocks=40, execution="eager")


def test_a_model_that_calls_torch_itself_runs_eagerly_and_that_is_told(odd_model: str) -> None:
    with LLM(odd_model, num_kv_blocks=40) as llm:
        assert llm.plan.execution.name == "eager"
        (fallback,) = (one for one in llm.plan.fallbacks if one.subject == "execution")
        assert "the model's result comes from no op" in fallback.reason
        assert len(answers(llm)) == len(PROMPTS)


def test_flat_that_cannot_be_had_is_refused_before_a_weight_is_read(odd_model: str) -> None:
    (Path(odd_model) / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="execution=flat cannot be had: the model is no list"):
        explain(EngineArgs(model=odd_model, execution="flat"))


def test_an_unknown_way_is_refused_with_the_known_ones(model: str) -> None:
    with pytest.raises(ConfigError, match="execution=fast is unknown; it takes flat or eager"):
        LLM(model, num_kv_blocks=40, execution="fast")  # type: ignore[arg-type]  # may be anything


def test_every_node_runs_once_in_every_step(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FlatExecutable] = []

    class Counted(FlatExecutable):
        __slots__ = ()

        def __init__(self, lists: Any, called: Any) -> None:
            super().__init__(lists, called, is_counted=True)
            made.append(self)

    monkeypatch.setattr("dougong.worker.loading.FlatExecutable", Counted)
    with LLM(model, num_kv_blocks=40) as llm:
        (flat,) = made
        before = flat.lines[0].counts.copy()
        answers(llm)
        ran = {now - then for now, then in zip(flat.lines[0].counts, before, strict=True)}
        steps = int(llm.stats().ranks[0]["num_steps"])
    assert ran == {steps}
