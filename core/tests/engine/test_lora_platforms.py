"""Adapters as platforms have them: a wrapper of their own, or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dougong import LLM, SamplingParams
from dougong.contracts import LoRAWrapper
from dougong.cpu.platform import CpuPlatform
from dougong.errors import ConfigError, PluginError
from tests.support.null_engine import NULL_OPTIONS, NullModels
from tests.support.tiny_adapters import TARGETS, write_adapter
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

OPTIONS: dict[str, Any] = {"platform": "cpu", "dtype": "float32", "num_kv_blocks": 50}
PROMPT = [5, 12, 19, 26, 33]
GREEDY = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)


calls: list[tuple[int, ...]] = []
steps: list[list[int]] = []


class LoopWrapper(LoRAWrapper):
    """Token by token; notes what it is asked."""

    def update_metadata(self, lora_indices: torch.Tensor) -> None:
        self._slots = lora_indices.tolist()
        steps.append(self._slots)

    def add_lora_linear(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        lora_a: torch.Tensor,
        lora_b: torch.Tensor,
        scale: float,
    ) -> None:
        calls.append(tuple(out.shape))
        for row, slot in enumerate(self._slots):
            if slot >= 0:
                out[row] += scale * (lora_b[slot] @ (lora_a[slot] @ x[row]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    write_tiny_checkpoint(folder / "base")
    write_adapter(folder / "a", tiny_config())
    return folder


@pytest.fixture
def _own_wrapper(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    target = f"{LoopWrapper.__module__}:{LoopWrapper.__qualname__}"
    monkeypatch.setattr(CpuPlatform, "get_punica_wrapper", lambda self: target)
    yield
    calls.clear()
    steps.clear()


def tokens(llm: LLM, lora: str | None = None) -> list[int]:
    return llm.generate([PROMPT], GREEDY, lora=lora)[0].outputs[0].token_ids


@pytest.mark.usefixtures("_own_wrapper")
def test_a_platforms_own_wrapper_computes_every_adapter(folder: Path) -> None:
    named = [f"a={folder / 'a'}"]
    with LLM(str(folder / "base"), lora=named, **OPTIONS) as llm:
        assert llm.plan.lora.wrapper.endswith("LoopWrapper")
        calls.clear()
        steps.clear()
        tokens(llm)
        assert calls == []  # nothing is asked where no request uses an adapter
        found = tokens(llm, "a")
        num_layers = tiny_config()["num_hidden_layers"]
        assert len(calls) == len(steps) * num_layers * len(TARGETS)
        assert steps[0] == [0] * len(PROMPT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuPlatform, "get_punica_wrapper", lambda self: REFERENCE)
        with LLM(str(folder / "base"), lora=named, **OPTIONS) as llm:
            assert tokens(llm, "a") == found


class BrokenWrapper(LoopWrapper):
    def update_metadata(self, lora_indices: torch.Tensor) -> None:
        raise OSError("the library is of another version")


def test_a_wrapper_that_fails_at_its_first_use_is_named_and_stops_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = f"{BrokenWrapper.__module__}:{BrokenWrapper.__qualname__}"
    monkeypatch.setattr(CpuPlatform, "get_punica_wrapper", lambda self: target)
    with pytest.raises(PluginError, match=r"BrokenWrapper, .* first use: .*another version"):
        LLM(str(folder / "base"), enable_lora=True, **OPTIONS)


REFERENCE = "dougong.reference:ReferenceLoRAWrapper"


def test_a_platform_without_adapters_refuses_them_from_the_plan(null_models: NullModels) -> None:
    model = null_models.write()
    with pytest.raises(ConfigError, match="platform null computes no adapters"):
        LLM(model, enable_lora=True, **NULL_OPTIONS)
    with LLM(model, **NULL_OPTIONS) as llm:
        assert "computes no adapters" in llm.plan.lora.reason


def test_on_the_cpu_the_fused_slot_gives_way_and_its_parts_run_packed(folder: Path) -> None:
    with LLM(str(folder / "base"), enable_lora=True, **OPTIONS) as llm:
        ran = llm.plan.implementations()
        assert set(ran["gate_up_act"]) == {"native"}
        assert set(ran["linear"]) == {"cpu/packed_linear"}
        told = [one for one in llm.plan.fallbacks if one.subject == "op gate_up_act"]
        assert "adapters add" in told[0].reason
