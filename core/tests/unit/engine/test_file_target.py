"""A plan for a device that a capability file describes, with and without its wheel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dougong.config import EngineArgs
from dougong.contracts import AttentionLimits, Claims, DeviceFacts, KernelReport, Needs
from dougong.describe import OpCandidate
from dougong.describe.capability_file import CapabilityFile, write_capability_file
from dougong.describe.declared_backend import DeclaredAttention
from dougong.engine.planning import explain
from dougong.errors import ConfigError
from tests.support.null_engine import NullModels
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint

GIB = 2**30
FACTS = DeviceFacts(device_index=0, name="Nine", arch="nine", memory_total_bytes=64 * GIB)
CHIP = CapabilityFile(
    platform="chip",
    claims=Claims(arch="nine", dtypes=("float32",), kv_block_sizes=(32,), kv_alignment_bytes=512),
    facts=FACTS,
    kernels=KernelReport(missing={"chip-kernels": "no toolkit"}),
    attention={
        "chip/flash": DeclaredAttention(
            limits=AttentionLimits(dtypes=frozenset({"float32"}), head_sizes=frozenset({16}))
        )
    },
    ops=(
        OpCandidate(key="lm_head", name="chip/head", origin="dougong-chip 1"),
        OpCandidate(
            key="linear",
            name="chip/mm",
            origin="dougong-chip 1",
            when=Needs(library="chip-kernels"),
        ),
    ),
)


@pytest.fixture
def bare(null_models: NullModels) -> str:
    """A model's folder with its configuration and no weights; the null platform is installed."""
    folder = Path(null_models.write())
    for file in folder.glob("*.safetensors"):
        file.unlink()
    return str(folder)


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    """The file of a device whose wheel is not installed."""
    write_capability_file(tmp_path / "chip.json", CHIP)
    return tmp_path / "chip.json"


def test_a_chip_that_nobody_has_is_planned_for_from_its_file_alone(bare: str, chip: Path) -> None:
    plan = explain(EngineArgs(model=bare), chip)
    assert (plan.platform, plan.platform_wheel, plan.device) == ("chip", "", "Nine")
    assert plan.attention_backends() == {"chip/flash": 2}
    assert plan.kv_cache.block_size == 32
    assert plan.implementations()["lm_head"] == {"chip/head": 1}
    assert any("no toolkit" in one.reason for one in plan.fallbacks)
    assert "chip.json" in plan.platform_reasons[0]


def test_attention_in_plain_torch_is_there_beside_what_a_file_declares(
    tmp_path: Path, chip: Path
) -> None:
    config = tiny_config(head_dim=24)
    model = write_tiny_checkpoint(tmp_path / "odd", config)
    plan = explain(EngineArgs(model=str(model)), chip)
    assert plan.attention_backends() == {"reference/torch": 2}
    assert any("head size 24" in one.reason for one in plan.fallbacks)


def test_an_installed_wheel_is_asked_itself_and_the_file_says_what_its_device_can(
    bare: str, tmp_path: Path
) -> None:
    file = replace(CHIP, platform="null")
    write_capability_file(tmp_path / "null.json", file)
    plan = explain(EngineArgs(model=bare), tmp_path / "null.json")
    assert plan.platform_wheel == "dougong-null 1.0"
    assert plan.attention_backends() == {"reference/torch": 2}
    assert plan.device == "Nine"
    assert plan.implementations()["lm_head"] == {"native": 1}
    assert plan.kernels_missing == {"chip-kernels": "no toolkit"}


def test_options_that_contradict_a_file_are_refused_together(bare: str, chip: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        explain(EngineArgs(model=bare, platform="null", devices="0"), chip)
    assert len(caught.value.problems) == 2
