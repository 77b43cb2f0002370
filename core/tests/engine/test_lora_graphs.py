"""Captured steps add each request's adapter, and none to padding or to requests without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dougong import LLM, SamplingParams
from dougong.config.args import GraphLevelName
from dougong.lora import LoRASlots
from tests.support.graph_platform import install_graph_platform
from tests.support.tiny_adapters import write_adapter
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

OPTIONS: dict[str, Any] = {
    "platform": "graphs",
    "max_model_len": 64,
    "max_num_seqs": 6,
    "max_num_batched_tokens": 24,
    "block_size": 4,
    "num_kv_blocks": 80,
    "max_loras": 2,
}
PROMPTS = [
    [(7 * position + 13 * start + 5) % 250 for position in range(3 + 5 * start)]
    for start in range(6)
]
LORAS = ["a", None, "b", "a", "b", None]
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_graph_platform(tmp_path / "site", monkeypatch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    write_tiny_checkpoint(folder / "base")
    for seed, name in enumerate("ab"):
        write_adapter(folder / name, tiny_config(), seed=seed)
    return folder


def started(folder: Path, **options: Any) -> LLM:
    named = [f"{name}={folder / name}" for name in "ab"]
    return LLM(str(folder / "base"), lora=named, **OPTIONS | options)


def tokens(llm: LLM, loras: list[str | None]) -> list[list[int]]:
    outputs = llm.generate(PROMPTS, GREEDY, lora=loras)
    return [list(one.outputs[0].token_ids) for one in outputs]


@pytest.fixture(scope="module")
def expected(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[list[int]]]:
    """Of eager steps, one request at a time: with adapters, then without."""
    with pytest.MonkeyPatch.context() as patch:
        install_graph_platform(tmp_path_factory.mktemp("site") / "site", patch)
        with started(folder, max_num_seqs=1, enforce_eager=True) as llm:
            return [tokens(llm, LORAS), tokens(llm, [None] * 6)]


@pytest.mark.parametrize("level", ["piecewise", "decode", "full"])
def test_captured_steps_say_what_eager_ones_say(
    folder: Path, expected: list[list[list[int]]], level: GraphLevelName
) -> None:
    with started(folder, graph_level=level) as llm:
        assert tokens(llm, LORAS) == expected[0]
        assert tokens(llm, [None] * 6) == expected[1]
        llm.unload_lora("a")
        llm.load_lora("a", str(folder / "a"))  # the captured steps find it in the old place
        assert tokens(llm, LORAS) == expected[0]
        hits: dict[str, int] = llm.stats().ranks[0]["graphs"]["hits"]
    assert sum(hits.values()) > 10


def test_steps_captured_without_adapters_would_be_noticed(
    folder: Path, expected: list[list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = LoRASlots.begin_step

    def begin_step(self: LoRASlots, lora_indices: Any) -> None:
        honest(self, lora_indices)
        self._use.is_active = bool((lora_indices >= 0).any())

    monkeypatch.setattr(LoRASlots, "begin_step", begin_step)
    with started(folder, graph_level="decode") as llm:
        assert llm.plan.mode.name == "decode"
        assert tokens(llm, LORAS) != expected[0]
