"""Everything the core wants to know of a device can be asked through the contracts.

An engine runs on a platform whose classes answer nothing else: a question that no contract
declares would raise.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from dougong import LLM, SamplingParams
from dougong.cli.capabilities_description import describe_platform
from dougong.contracts import (
    AttentionBackend,
    AttentionImpl,
    Claims,
    DeviceFacts,
    DeviceRuntime,
    Platform,
)
from dougong.describe.capability_file import capability_json
from dougong.platforms import open_platform
from tests.support.contract_only import UndeclaredQuestionError, contract_only
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

SOURCE = Path(__file__).parents[2] / "src" / "dougong"
# Claims that this version acts on nowhere; a plugin states them, and doctor and files show them.
NOT_ACTED_ON = {
    "pin_memory",
    "async_execution",
    "triton",
    "compile_backends",
    "collective_dtypes",
    "max_steps_in_flight",
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Guard the CPU platform's classes; collects what the core asks."""
    from dougong.cpu import attention, platform, runtime

    found: set[str] = set()
    for module, name, contract in (
        (platform, "CpuPlatform", Platform),
        (runtime, "CpuDeviceRuntime", DeviceRuntime),
        (attention, "NativeAttentionBackend", AttentionBackend),
        (attention, "NativeAttentionImpl", AttentionImpl),
    ):
        guarded = contract_only(getattr(module, name), contract, found)
        monkeypatch.setattr(module, name, guarded)
    return found


def test_a_whole_run_asks_only_what_the_contracts_declare(asked: set[str], tmp_path: Path) -> None:
    model = str(write_tiny_checkpoint(tmp_path, tiny_config()))
    with LLM(model, platform="cpu", num_kv_blocks=20) as llm:
        params = SamplingParams(temperature=0.7, seed=1, max_tokens=4, logprobs=2, n=2)
        assert len(llm.generate(["the in an", "or"], params)) == 2
    assert {
        "Platform.claims", "Platform.facts", "Platform.get_attn_backends",
        "Platform.check_and_update_config", "DeviceRuntime.new_event",
        "AttentionBackend.supports", "AttentionBackend.kv_layout", "AttentionImpl.forward",
    } <= asked  # fmt: skip


@pytest.mark.parametrize("question", ["is_fast", "chip_number"])
def test_a_planted_question_is_refused(asked: set[str], question: str) -> None:
    loaded = open_platform("cpu")
    source = compile(f"platform.{question}", "planted", "eval")
    with pytest.raises(UndeclaredQuestionError, match=question):
        eval(source, {"__name__": "dougong.engine.planted", "platform": loaded.platform})
    assert not [name for name in asked if question in name]


def test_every_claim_and_fact_can_be_written_down_and_read_back() -> None:
    """So that whoever has no device can ask the same questions of a file."""
    loaded = open_platform("cpu")
    written = json.loads(capability_json(describe_platform(loaded, is_measuring=False)))
    for part, cls in (("claims", Claims), ("facts", DeviceFacts)):
        assert written[part].keys() == {one.name for one in fields(cls)}


def test_every_claim_is_acted_on_or_is_named_as_not() -> None:
    read = {
        name
        for path in SOURCE.rglob("*.py")
        if not {"cli", "contracts"} & set(path.parts) and path.name != "capability_checks.py"
        for name in re.findall(r"claims\.([a-z_]+)", path.read_text())
    }
    assert {one.name for one in fields(Claims)} - read == NOT_ACTED_ON
