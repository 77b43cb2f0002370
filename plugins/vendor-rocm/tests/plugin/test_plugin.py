from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from dougong.contracts import Available, NotHere

import dougong_rocm
from dougong_rocm import installation, plugin
from dougong_rocm.driver import Machine
from dougong_rocm.installation import TorchBuild
from tests.plugin.machine import build

ROCM = TorchBuild("2.8.0+rocm6.4", is_for_hip=True)


@pytest.fixture
def torch_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "torch_build", lambda: ROCM)


def test_devices_are_told_where_all_is_there(tmp_path: Path, torch_is: None) -> None:
    answer = plugin.probe_machine(build(tmp_path))
    assert isinstance(answer, Available)
    assert [info.arch for info in answer.devices] == ["gfx942", "gfx90a"]
    assert answer.devices[0].driver_version == "6.12.12"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (TorchBuild("", is_for_hip=False), "torch is not installed"),
        (TorchBuild("2.13.0+cpu", is_for_hip=False), "2.13.0\\+cpu is not built for ROCm"),
        (TorchBuild("2.13.0", is_for_hip=False), "whl/rocm"),
    ],
)
def test_a_torch_for_another_device_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: TorchBuild, told: str
) -> None:
    monkeypatch.setattr(plugin, "torch_build", lambda: found)
    answer = plugin.probe_machine(build(tmp_path))
    assert isinstance(answer, NotHere)
    with pytest.raises(AssertionError, match=told):
        raise AssertionError(answer.reason)


def test_a_mask_that_leaves_nothing_is_told(tmp_path: Path, torch_is: None) -> None:
    answer = plugin.probe_machine(build(tmp_path, environment={"HIP_VISIBLE_DEVICES": "-1"}))
    assert isinstance(answer, NotHere)
    assert "leaves no GPU" in answer.reason


def test_on_a_machine_with_nothing_the_driver_is_what_is_missing(tmp_path: Path) -> None:
    answer = plugin.probe_machine(Machine(tmp_path, {}))
    assert isinstance(answer, NotHere)
    assert "/dev/kfd" in answer.reason


def test_nothing_of_the_vendors_is_imported_and_torch_not_by_the_descriptor() -> None:
    modules = sorted(path.stem for path in Path(dougong_rocm.__file__).parent.glob("*.py"))
    code = f"""
import importlib, sys
import dougong_rocm.plugin as plugin
plugin.probe()
assert "torch" not in sys.modules
for name in {modules!r}:
    importlib.import_module("dougong_rocm." + name)
assert not {{"aiter", "amdsmi", "triton"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("version", "runtime"),
    [("2.8.0+rocm6.4", "6.4"), ("2.8.0+rocm7.0.2.git", "7.0.2"), ("2.8", "")],
)
def test_a_build_names_the_rocm_it_was_built_with(version: str, runtime: str) -> None:
    assert TorchBuild(version, is_for_hip=True).runtime_version == runtime


def test_a_build_without_a_suffix_is_known_by_its_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "version_of", lambda distribution: "2.8.0")
    assert not installation.torch_build().is_for_hip
    library = tmp_path / "torch" / "lib" / "libtorch_hip.so"
    library.parent.mkdir(parents=True)
    library.touch()
    (tmp_path / "torch" / "__init__.py").touch()

    class Spec:
        submodule_search_locations = (str(tmp_path / "torch"),)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: Spec())
    assert installation.torch_build().is_for_hip


def test_the_installed_rocm_is_asked_for_its_version(tmp_path: Path) -> None:
    place = tmp_path / "opt" / "rocm" / ".info"
    place.mkdir(parents=True)
    (place / "version").write_text("6.4.1-83\n")
    assert installation.rocm_version(tmp_path, {}) == "6.4.1-83"
    assert installation.rocm_version(tmp_path, {"ROCM_HOME": str(tmp_path / "no")}) == ""
