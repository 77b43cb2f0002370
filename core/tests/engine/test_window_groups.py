"""Layers with and without a window, in one model: block tables of their own, whatever the scheduler
does with requests. The oracle is `transformers`' model of such layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from dougong import LLM, SamplingParams
from dougong.config import CacheConfig, EngineArgs, EngineOptions, SchedulerConfig
from dougong.cpu.worker import CpuWorker
from dougong.engine.planning import explain
from dougong.errors import ConfigError, DougongError
from dougong.planner import FallbackLevel
from dougong.scheduler import Scheduler
from tests.support.installed_stubs import Installed
from tests.support.stub_attention import REFERENCE, StubBackend, attention_platform
from tests.support.stub_plugins import Stub
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

WINDOW = 6
FULL, SLIDING = "full_attention", "sliding_attention"
LAYERS = (FULL, SLIDING, SLIDING, FULL)
MODEL = """
from dougong.attention import Attention
from dougong.contracts import ModelRegistration
from dougong.models.llama import LlamaForCausalLM


class Windowed(LlamaForCausalLM):
    def __init__(self, hf_config, dtype, max_model_len=None):
        super().__init__(hf_config, dtype, max_model_len)
        for module in self.modules():
            if isinstance(module, Attention):
                is_sliding = hf_config["layer_types"][module.layer_index] == "sliding_attention"
                module.sliding_window = hf_config["sliding_window"] if is_sliding else None


@hookimpl
def dougong_register_models():
    return [ModelRegistration("MinistralForCausalLM", target=f"{__name__}:Windowed")]
"""
EXTENSION = Stub(distribution="windows", name="windows", has_platform=False, hooks=MODEL)
PROMPTS = [[(7 * at + 13 * start + 5) % 250 for at in range(17 + 9 * start)] for start in range(3)]
NUM_TOKENS = 24
GREEDY = SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True)
RUNS: dict[str, EngineOptions] = {
    "native": {},
    "plain torch": {"attention_backend": REFERENCE},
    "chunks": {"max_num_batched_tokens": 7, "max_num_seqs": 3},
    "wide blocks": {"block_size": 64},
    "preempted": {"num_kv_blocks": 12, "max_num_seqs": 3},
    "without a prefix cache": {"enable_prefix_caching": False},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    config = tiny_config(
        architectures=["MinistralForCausalLM"], model_type="ministral", layer_types=list(LAYERS),
        num_hidden_layers=len(LAYERS), sliding_window=WINDOW, head_dim=16,
    )  # fmt: skip
    return str(write_tiny_checkpoint(tmp_path_factory.mktemp("model"), config))


@torch.inference_mode()
def their_tokens(model: str, changes: dict[str, Any]) -> list[list[int]]:
    config = transformers.AutoConfig.from_pretrained(model, **changes)
    theirs = transformers.MinistralForCausalLM.from_pretrained(
        model, config=config, attn_implementation="eager"
    )
    answers = []
    for prompt in PROMPTS:
        tokens = list(prompt)
        for _ in range(NUM_TOKENS):
            logits = theirs(torch.tensor([tokens])).logits[0, -1]
            tokens.append(int(logits.argmax()))
        answers.append(tokens[len(prompt) :])
    return answers


@pytest.fixture(scope="module")
def expected(model: str) -> list[list[int]]:
    return their_tokens(model, {})


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    installed = Installed(tmp_path / "stubs", monkeypatch)
    installed.add(EXTENSION)
    return installed


def answers(llm: LLM) -> list[list[int]]:
    outputs = llm.generate(prompt_token_ids=PROMPTS, sampling_params=GREEDY)
    return [list(output.outputs[0].token_ids) for output in outputs]


def test_the_window_of_each_layer_matters_to_the_answers(
    model: str, expected: list[list[int]]
) -> None:
    """Else the tests below would show nothing of one group or the other."""
    for layers in ([FULL] * 4, [SLIDING] * 4, [SLIDING, FULL, FULL, SLIDING]):
        assert their_tokens(model, {"layer_types": layers}) != expected


@pytest.mark.parametrize("run", RUNS)
def test_each_group_has_its_own_blocks_and_the_answers_are_those_of_the_oracle(
    installed: Installed, model: str, expected: list[list[int]], run: str
) -> None:
    options: EngineOptions = {"platform": "cpu", "num_kv_blocks": 100, **RUNS[run]}
    with LLM(model, **options) as llm:
        assert answers(llm) == expected
        assert answers(llm) == expected, "again, over what the prefix cache kept"
        scheduler, plan = llm.stats().scheduler, llm.plan
    kinds = {one.assignment.layer_indices: one.assignment.request.sliding_window
             for one in plan.attention}  # fmt: skip
    assert kinds == {(0, 3): None, (1, 2): WINDOW}
    assert (scheduler.num_preemptions > 0) is (run == "preempted")
    assert scheduler.kv_cache.num_held_blocks == 0
    if run != "without a prefix cache" and run != "wide blocks":
        assert scheduler.kv_cache.num_hit_tokens > 0


def test_a_backend_without_windows_serves_the_other_layers_alone(
    installed: Installed, model: str, expected: list[list[int]]
) -> None:
    installed.add(attention_platform("acme", StubBackend(name="acme/flash")))
    with LLM(model, platform="acme", num_kv_blocks=100) as llm:
        assert answers(llm) == expected
        report = llm.report
    assert report.attention_backends == {"acme/flash": 2, REFERENCE: 2}
    (fallback,) = report.plan.fallbacks
    assert fallback.level is FallbackLevel.PATH
    assert fallback.subject == "attention of layers 1-2"
    assert "a sliding window, which it does not take" in fallback.reason


def test_forced_on_all_layers_it_is_refused_for_those_with_a_window(
    installed: Installed, model: str
) -> None:
    installed.add(attention_platform("acme", StubBackend(name="acme/flash")))
    args = EngineArgs(model=model, platform="acme", attention_backend="acme/flash")
    with pytest.raises(ConfigError) as caught:
        explain(args)
    (problem,) = caught.value.problems
    assert f"sliding_window={WINDOW} in layers 1-2" in problem
    assert f"{REFERENCE} (not asked for): would do" in problem


def test_a_scheduler_that_counts_in_other_blocks_than_the_layouts_is_refused(
    installed: Installed, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted(config: SchedulerConfig, cache: CacheConfig) -> Scheduler:
        return Scheduler(config, replace(cache, block_size=2 * cache.block_size))

    ended: list[CpuWorker] = []
    shutdown = CpuWorker.shutdown

    def note(worker: CpuWorker) -> None:
        ended.append(worker)
        shutdown(worker)

    monkeypatch.setattr(CpuWorker, "shutdown", note)
    monkeypatch.setattr("dougong.engine.startup.Scheduler", planted)
    with pytest.raises(DougongError, match=r"32.*16|16.*32"):
        LLM(model, platform="cpu", num_kv_blocks=100)
    assert len(ended) == 1
