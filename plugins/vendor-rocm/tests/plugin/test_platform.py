from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from dougong.contracts import ConfigView, DeviceError, read_families
from dougong.testing.chip_files import chip_file_problems

import dougong_rocm
from dougong_rocm import library, platform
from dougong_rocm.driver import Machine
from dougong_rocm.installation import TorchBuild
from dougong_rocm.platform import RocmPlatform
from dougong_rocm.quantization import INT8_KERNEL
from tests.plugin.machine import GIB, TWO_CARDS, Card, build

CHIPS = Path(dougong_rocm.__file__).parent / "chips"
FAMILIES = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1101", "gfx1102")


def platform_on(machine: Machine) -> RocmPlatform:
    made = RocmPlatform()
    object.__setattr__(made, "_machine", machine)
    return made


def test_every_family_of_the_data_file_is_known() -> None:
    assert tuple(RocmPlatform().families()) == read_families("dougong_rocm") == FAMILIES


@pytest.mark.parametrize("arch", FAMILIES)
def test_a_family_claims_what_tells_it_apart(arch: str) -> None:
    claims = RocmPlatform().claims(arch)
    assert not claims.is_generic
    assert claims.dtypes[0] == "bfloat16"
    assert claims.limits["rocm.wavefront"] == (32 if arch.startswith("gfx11") else 64)
    assert ("rocm.aiter" in claims.features) is (arch in library.ARCHS)
    formats = [one.kernel for one in claims.quantization]
    assert formats == ([INT8_KERNEL] if arch in library.ARCHS else [])
    kinds = {one for one in claims.features if one.startswith("fp8.")}
    assert kinds == {"gfx942": {"fp8.e4m3fnuz"}, "gfx950": {"fp8.e4m3fn"}}.get(arch, set())


def test_an_unknown_family_gets_what_holds_for_all() -> None:
    claims = RocmPlatform().claims("gfx1201")
    assert claims.is_generic
    assert claims.features == frozenset()
    assert not (claims.triton or claims.graph_capture)


def test_facts_are_the_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "torch_build", lambda: TorchBuild("2.8+rocm6.4", is_for_hip=True))
    made = platform_on(build(tmp_path, environment={"HIP_VISIBLE_DEVICES": "1"}))
    facts = made.facts(0)
    assert (facts.arch, facts.memory_total_bytes) == ("gfx90a", 64 * GIB)
    assert facts.memory_free_bytes == 63 * GIB
    assert (facts.driver_version, facts.runtime_version) == ("6.12.12", "6.4")
    assert not made.facts_open_context
    with pytest.raises(DeviceError, match="index 1"):
        made.facts(1)


def test_kernels_are_told_call_by_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dougong_triton_kernels.availability.missing_triton", lambda: None)
    report = platform_on(build(tmp_path, TWO_CARDS[1:])).import_kernels()
    assert "there is gfx90a" in report.missing["aiter.rms_norm"]
    assert [one.partition(" ")[0] for one in report.loaded] == ["triton-kernels"]


def test_an_unknown_family_runs_no_triton_kernel(tmp_path: Path) -> None:
    report = platform_on(build(tmp_path, (Card(target=120001),))).import_kernels()
    assert "not compiled for gfx1201" in report.missing["triton-kernels"]


@pytest.mark.parametrize(
    ("backend", "asked", "proposed"),
    [
        ("rocm/aiter", None, [128]),
        ("rocm/aiter-unified", None, [64]),
        ("rocm/aiter-unified", 16, []),
        ("rocm/triton", None, []),
        (None, None, []),
    ],
)
def test_the_block_size_follows_a_named_backend(
    backend: str | None, asked: int | None, proposed: list[int]
) -> None:
    config = ConfigView(model="m", attention_backend=backend, block_size=asked)
    changes = RocmPlatform().check_and_update_config(config)
    assert [(one.field, one.value) for one in changes] == [("block_size", v) for v in proposed]


def test_every_class_that_is_named_is_there() -> None:
    made = RocmPlatform()
    names = [
        *made.get_attn_backends().values(),
        made.get_device_communicator_cls(),
        made.get_graph_runner_cls() or "",
    ]
    for name in names:
        module, _, attribute = name.partition(":")
        assert isinstance(getattr(importlib.import_module(module), attribute), type)


def test_the_chip_files_say_what_the_wheel_says(tmp_path: Path) -> None:
    assert chip_file_problems("rocm", CHIPS, tmp_path) == []
