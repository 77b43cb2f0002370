"""A plan for a device that a capability file describes, with and without its wheel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dougong.cli import main as command_line
from dougong.config import EngineArgs
from dougong.contracts import (
    AttentionLimits,
    Claims,
    DeviceFacts,
    GraphLevel,
    GraphSupport,
    KernelReport,
    Needs,
)
from dougong.describe import OpCandidate
from dougong.describe.capability_file import (
    CapabilityFile,
    read_capability_file,
    write_capability_file,
)
from dougong.describe.declared_backend import DeclaredAttention
from dougong.engine.file_target import target_in_file
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
    assert "layouts as it states them" in plan.platform_reasons[0]
    assert "no config proposals" in plan.platform_reasons[0]
    (approximate,) = plan.platform_reasons[1:]
    assert "does not state every KV layout of chip/flash" in approximate


def test_graphs_of_a_device_that_is_not_here_are_planned_as_its_file_says(
    tmp_path: Path, bare: str
) -> None:
    flash = replace(CHIP.attention["chip/flash"], graph=GraphSupport(GraphLevel.PIECEWISE))
    file = replace(
        CHIP,
        claims=replace(CHIP.claims, graph_capture=True),
        attention={"chip/flash": flash},
        graph=GraphSupport(GraphLevel.PIECEWISE, sizes=(8, 16)),
    )
    write_capability_file(tmp_path / "graphs.json", file)
    plan = explain(EngineArgs(model=bare), tmp_path / "graphs.json")
    assert (plan.mode.name, plan.mode.graphs.piecewise) == ("piecewise", (8, 16))


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


@pytest.fixture
def cpu_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """As ``dougong capabilities --platform cpu --save`` writes it."""
    path = tmp_path / "cpu.json"
    with pytest.raises(SystemExit) as stopped:
        command_line.main(["capabilities", "--platform", "cpu", "--save", str(path)])
    assert not stopped.value.code
    capsys.readouterr()
    return path


@pytest.mark.parametrize("options", [{}, {"dtype": "bfloat16"}, {"dtype": "float16"}])
def test_a_device_without_its_wheel_gets_the_layout_and_blocks_of_the_device_itself(
    cpu_file: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    renamed = tmp_path / "chip.json"
    write_capability_file(renamed, replace(read_capability_file(cpu_file), platform="chip"))
    config = tiny_config(head_dim=16)
    model = str(write_tiny_checkpoint(tmp_path / "model", config))
    # The share of memory is the platform's proposal, which no file has.
    args = EngineArgs(model=model, device_memory_utilization=0.5, **options)
    itself, described = explain(args, cpu_file), explain(args, renamed)
    assert described.platform_wheel == ""
    assert described.kv_cache == itself.kv_cache
    assert [one.assignment for one in described.attention] == [
        one.assignment for one in itself.attention
    ]
    assert described.implementations() == itself.implementations()
    here = explain(replace(args, platform="cpu"))
    assert described.kv_cache.block_bytes == here.kv_cache.block_bytes
    assert [one.assignment.layout for one in described.attention] == [
        one.assignment.layout for one in here.attention
    ]
    told = "\n".join(described.platform_reasons)
    assert "cpu/native may refuse more than the stated limits say" in told
    assert "workspace of cpu/native is that of a layer of common sizes" in told
    assert "KV layout of" not in told


SWITCHED = OpCandidate(
    key="lm_head", name="chip/fast", origin="dougong-chip 1", when=Needs(env={"CHIP_FAST": "1"})
)


def test_variables_have_the_values_of_the_machine_where_the_file_was_made(
    bare: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def head(**environment: str | None) -> dict[str, int]:
        path = tmp_path / f"{len(list(tmp_path.glob('*.json')))}.json"
        write_capability_file(path, replace(CHIP, ops=(SWITCHED,), environment=environment))
        return explain(EngineArgs(model=bare), path).implementations()["lm_head"]

    monkeypatch.delenv("CHIP_FAST", raising=False)
    assert head(CHIP_FAST="1") == {"chip/fast": 1}
    monkeypatch.setenv("CHIP_FAST", "1")
    assert head(CHIP_FAST=None) == {"native": 1}
    assert head() == {"native": 1}


def test_variables_of_an_installed_wheels_conditions_too(
    bare: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_capability_file(
        tmp_path / "null.json", replace(CHIP, platform="null", environment={"CHIP_FAST": "1"})
    )
    args = EngineArgs(model=bare)
    assert target_in_file(tmp_path / "null.json", args).environment == {"CHIP_FAST": "1"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"wheel": "dougong-null 0.9"},
            "made with dougong-null 0.9; dougong-null 1.0 is installed",
        ),
        ({"contract": "1.7"}, "made under contract 1.7; this is contract 1.0"),
        ({"wheel": "dougong-null 1.0"}, ""),
        ({}, ""),
    ],
)
def test_what_was_another_when_the_file_was_made_is_told(
    bare: str, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    path = tmp_path / "null.json"
    write_capability_file(path, replace(CHIP, platform="null", **changes))
    plan = explain(EngineArgs(model=bare), path)
    assert [told in one for one in plan.platform_reasons if "made" in one] == [True] * bool(told)


@pytest.mark.parametrize("platform", ["null", "chip"])
def test_another_contract_is_refused_with_and_without_the_wheel(
    bare: str, tmp_path: Path, platform: str
) -> None:
    path = tmp_path / "old.json"
    write_capability_file(path, replace(CHIP, platform=platform, contract="2.0"))
    with pytest.raises(
        ConfigError, match=r"old\.json .*\n.*contract is '2\.0', and this dougong has"
    ):
        explain(EngineArgs(model=bare), path)


def test_names_of_ops_and_of_their_properties_are_held_against_the_catalogue(
    bare: str, tmp_path: Path
) -> None:
    path = tmp_path / "misspelt.json"
    ops = (
        OpCandidate(key="rms_nrom", name="chip/a", origin=""),
        OpCandidate(key="rms_norm", name="chip/b", origin="", when=Needs(hiden_size=64)),
        OpCandidate(key="chip/own", name="chip/c", origin="", when=Needs(hiden_size=64)),
    )
    write_capability_file(path, replace(CHIP, ops=ops))
    with pytest.raises(ConfigError) as caught:
        explain(EngineArgs(model=bare), path)
    first, second = caught.value.problems
    assert "ops[0].key is 'rms_nrom', and there is no such op: did you mean 'rms_norm'?" in first
    assert "ops[1].when.hiden_size is no property of this op: did you mean 'hidden_size'" in second


def test_options_that_contradict_a_file_are_refused_together(bare: str, chip: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        explain(EngineArgs(model=bare, platform="null", devices="0"), chip)
    assert len(caught.value.problems) == 2
