"""Adapters as a stranger's platform computes them."""

from __future__ import annotations

from pathlib import Path

from dougong import LLM, SamplingParams
from tests.patches.conftest import Outside
from tests.support.stub_plugins import PLATFORM
from tests.support.tiny_adapters import TARGETS, write_adapter
from tests.support.tiny_models import tiny_config

WRAPPER = """
from dougong.contracts import LoRAWrapper


class OwnWrapper(LoRAWrapper):
    def update_metadata(self, lora_indices):
        count("step")
        self.slots = lora_indices.tolist()

    def add_lora_linear(self, out, x, lora_a, lora_b, scale):
        count("projection")
        for row, slot in enumerate(self.slots):
            if slot >= 0:
                out[row] += scale * (lora_b[slot] @ (lora_a[slot] @ x[row]))
"""
NAMES_IT = """
    def get_punica_wrapper(self):
        return "{package}.adapters:OwnWrapper"
"""
PROMPT = [5, 12, 19, 26, 33]
GREEDY = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)


def test_a_platforms_own_wrapper_computes_every_adapter(
    outside: Outside, model: str, tmp_path: Path
) -> None:
    config = tiny_config()
    write_adapter(tmp_path / "a", config)
    stub = outside.platform(PLATFORM + NAMES_IT)
    outside.write_module(stub, "adapters.py", WRAPPER)
    named = [f"a={tmp_path / 'a'}"]
    with LLM(model, platform="acme", num_kv_blocks=20, enable_lora=True, lora=named) as llm:
        assert llm.plan.lora.wrapper == f"{stub.package}.adapters:OwnWrapper"
        plain = llm.generate([PROMPT], GREEDY)[0].outputs[0].token_ids
        before = outside.counts()
        found = llm.generate([PROMPT], GREEDY, lora="a")[0].outputs[0].token_ids
        told = {what: count - before.get(what, 0) for what, count in outside.counts().items()}
    assert told["projection"] == told["step"] * config["num_hidden_layers"] * len(TARGETS)
    with LLM(model, platform="cpu", num_kv_blocks=20, enable_lora=True, lora=named) as llm:
        assert llm.generate([PROMPT], GREEDY, lora="a")[0].outputs[0].token_ids == found
    assert found != plain
