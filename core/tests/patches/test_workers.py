"""Workers, runners, models and processes of a stranger's wheel."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from dougong import LLM
from tests.patches.conftest import Outside
from tests.support.greedy import greedy_tokens
from tests.support.stub_plugins import PLATFORM

WORKER = """
    def get_worker_cls(self): return "{package}.worker:OwnWorker"
"""
RUNNER = """
from dougong.reference import ModelRunner, ReferenceWorker


class OwnRunner(ModelRunner):
    def prepare_inputs(self, step):
        count("prepare")
        return super().prepare_inputs(step)

    def forward(self, inputs):
        count("forward")
        return super().forward(inputs)

    def sample(self, step):
        count("sample")
        return super().sample(step)


class OwnWorker(ReferenceWorker):
    runner_cls = OwnRunner

    def warm_up(self):
        super().warm_up()
        count("profiled")  # what a vendor measures once, when all is there
"""
MODEL = """
import torch
from torch import nn

from dougong.contracts import ModelRegistration
from dougong.ops import CustomOp, register_op
from dougong.reference import Attention, CausalLM, WeightTarget


@register_op
class Doubled(CustomOp):
    # An op that the core does not have, with a form of its weight that is made after loading.
    key = "ops/doubled"
    property_names = ()

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width), requires_grad=False)

    @classmethod
    def example(cls):
        op = cls(2)
        op.weight.fill_(1.0)
        op.post_load()
        return op, (torch.ones(1, 2),)

    def post_load(self):
        count("post_load")
        self.packed = self.weight * 2

    def forward_native(self, x):
        count("own op")
        return x * self.packed


class OwnModel(CausalLM):
    def __init__(self, hf_config, dtype, max_model_len=None):
        super().__init__(hf_config, dtype, max_model_len)
        width = hf_config["hidden_size"]
        self.table = nn.Parameter(
            torch.empty(hf_config["vocab_size"], width, dtype=dtype), requires_grad=False
        )
        self.scale = Doubled(width)
        self.attention = Attention(0, 4, 2, 16, 0.25)

    def forward(self, token_ids, positions, step):
        x = self.scale(self.table[token_ids]).view(-1, 4, 16)
        return self.attention(x, x[:, :2].contiguous(), x[:, 2:].contiguous(), step)

    def compute_logits(self, hidden):
        return (hidden @ self.table.T).float()

    def weight_targets(self):
        return {
            "model.embed_tokens.weight": WeightTarget(self.table),
            "model.norm.weight": WeightTarget(self.scale.weight),
        }


@hookimpl
def dougong_register_models():
    return [ModelRegistration("LlamaForCausalLM", target=f"{__name__}:OwnModel")]
"""
ALIAS = """
from dougong.contracts import ModelRegistration


@hookimpl
def dougong_register_models():
    return [ModelRegistration("AcmeForCausalLM", alias_of="LlamaForCausalLM")]
"""
PROCESSES = """
@hookimpl
def dougong_process_start(role, rank):
    count(f"process {role}")


@hookimpl
def dougong_engine_ready(status):
    count(f"ready on {status['platform']}")


@hookimpl
def dougong_step_done(stats):
    assert stats.seconds > 0
    count("step of %d" % (stats.num_prefill_tokens + stats.num_decode_tokens))
"""


def change_config(folder: Path, **changes: object) -> None:
    """Of a checkpoint."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_inputs_forward_sampling_and_warm_up_may_be_the_vendors(
    outside: Outside, model: str, expected: tuple[int, ...]
) -> None:
    stub = outside.platform(PLATFORM + WORKER)
    outside.write_module(stub, "worker.py", RUNNER)
    with LLM(model, platform="acme", num_kv_blocks=20) as llm:
        assert greedy_tokens(llm) == expected
    counts = outside.counts()
    assert counts["profiled"] == 1
    assert counts["prepare"] >= 6 and counts["forward"] >= 6 and counts["sample"] >= 6


def test_a_model_is_replaced_by_name_and_its_own_ops_are_loaded_like_the_cores(
    outside: Outside, model: str, tmp_path: Path
) -> None:
    outside.extension(MODEL)
    own = shutil.copytree(model, tmp_path / "own")
    weights = load_file(own / "model.safetensors")
    names = "model.embed_tokens.weight", "model.norm.weight"
    save_file({name: weights[name] for name in names}, own / "model.safetensors")
    change_config(own, num_hidden_layers=1)
    with LLM(str(own), platform="cpu", num_kv_blocks=20) as llm:
        assert len(greedy_tokens(llm)) == 6
        assert llm.report.implementations["ops/doubled"] == {"native": 1}
    counts = outside.counts()
    assert counts["post_load"] >= 1 and counts["own op"] > 6


def test_an_architecture_may_be_another_name_of_one_that_is_known(
    outside: Outside, model: str, expected: tuple[int, ...], tmp_path: Path
) -> None:
    outside.extension(ALIAS)
    own = shutil.copytree(model, tmp_path / "own")
    change_config(own, architectures=["AcmeForCausalLM"])
    with LLM(str(own), platform="cpu", num_kv_blocks=20) as llm:
        assert greedy_tokens(llm) == expected


@pytest.mark.parametrize("in_own_process", [False, True], ids=["here", "own process"])
def test_every_process_is_announced_and_every_step_is_told(
    outside: Outside, model: str, expected: tuple[int, ...], in_own_process: bool
) -> None:
    outside.extension(PROCESSES)
    with LLM(model, platform="cpu", num_kv_blocks=20, in_own_process=in_own_process) as llm:
        assert greedy_tokens(llm) == expected
    assert outside.processes("process front") == {os.getpid()}
    (engine,) = outside.processes("process engine")
    assert (engine != os.getpid()) is in_own_process
    assert outside.processes("ready on cpu") == outside.processes("step of 1") == {engine}
