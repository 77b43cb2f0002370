"""The descriptor: what it says where something is missing, and that it loads nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from dougong.contracts import Available, ConfigError, DeviceInfo, NotHere

from dougong_ascend import plugin as descriptor
from dougong_ascend import software
from dougong_ascend.driver import Machine

DEVICE = DeviceInfo(index=0, name="910B2", arch="910b")


@pytest.fixture
def with_torch_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the distribution were installed."""
    spec = ModuleSpec("torch_npu", None)
    monkeypatch.setattr(software, "find_spec", lambda name: spec)
    monkeypatch.setattr(software, "torch_npu_version", lambda: "2.13.0")


@pytest.fixture
def without_torch_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "find_spec", lambda name: None)


def toolkit(folder: Path) -> Path:
    (folder / "lib64").mkdir(parents=True)
    (folder / "lib64" / "libascendcl.so").touch()
    return folder


def test_importing_it_loads_neither_torch_nor_the_vendor() -> None:
    code = (
        "import sys, dougong_ascend.plugin, dougong_ascend.platform\n"
        "print(sorted({'torch', 'torch_npu'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


@pytest.mark.usefixtures("without_torch_npu")
def test_a_machine_with_nothing_is_told_every_missing_piece(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(descriptor, "Machine", lambda: Machine(tmp_path, tmp_path))
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    answer = descriptor.probe()
    assert isinstance(answer, NotHere)
    for piece in ("/dev/davinci0", "pip install torch-npu", "CANN is not installed"):
        assert piece in answer.reason


def test_device_files_that_may_not_be_opened_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("davinci0", "davinci1", "davinci_manager"):
        (tmp_path / name).touch()
    monkeypatch.setattr(descriptor, "Machine", lambda: Machine(tmp_path, tmp_path))
    monkeypatch.setattr(descriptor, "missing_software", lambda: ())
    monkeypatch.setattr(os, "access", lambda file, mode: Path(file).name != "davinci1")
    assert descriptor.probe() == NotHere(
        f"{tmp_path}/davinci1 cannot be opened by this user: add it to the group that owns it"
    )


@pytest.mark.usefixtures("with_torch_npu")
def test_without_cann_torch_itself_fails_and_the_way_out_is_told() -> None:
    *_, last = software.missing_software({})
    assert "import torch" in last and "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in last


@pytest.mark.usefixtures("with_torch_npu")
def test_with_autoload_off_there_is_no_such_trap() -> None:
    (only,) = software.missing_software({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert "CANN" in only


@pytest.mark.usefixtures("without_torch_npu")
def test_nothing_is_said_of_the_trap_where_torch_npu_is_not_installed() -> None:
    assert not any("import torch" in one for one in software.missing_software({}))


@pytest.mark.usefixtures("with_torch_npu")
@pytest.mark.parametrize("variable", ["ASCEND_HOME_PATH", "LD_LIBRARY_PATH"])
def test_the_toolkit_is_found_by_either_variable(tmp_path: Path, variable: str) -> None:
    home = toolkit(tmp_path / "cann")
    value = str(home) if variable == "ASCEND_HOME_PATH" else f"/nowhere:{home / 'lib64'}"
    assert software.missing_software({variable: value}) == ()


@pytest.mark.usefixtures("with_torch_npu")
def test_a_home_without_the_library_is_named() -> None:
    told = software.missing_software({"ASCEND_HOME_PATH": "/opt/empty"})
    assert "ASCEND_HOME_PATH=/opt/empty has no lib64/libascendcl.so" in told[0]


@pytest.mark.usefixtures("with_torch_npu")
def test_a_toolkit_that_nobody_sourced_is_found_in_its_usual_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = toolkit(tmp_path / "ascend-toolkit" / "latest")
    monkeypatch.setattr(software, "_USUAL_HOMES", (str(home),))
    told = software.missing_software({})[0]
    assert f"source {home.parent}/set_env.sh" in told


def test_the_driver_s_version_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "version.info"
    assert software.driver_version(file) == ""
    file.write_text("Version=24.1.rc2\nascendhal_version=7.35.19\n")
    assert software.driver_version(file) == "24.1.rc2"


def test_devices_are_available_where_nothing_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "davinci0").touch()
    monkeypatch.setattr(descriptor, "Machine", lambda: Machine(tmp_path, tmp_path))
    monkeypatch.setattr(descriptor, "missing_software", lambda: ())
    monkeypatch.setattr(descriptor, "list_devices", lambda: (DEVICE,))
    assert descriptor.probe() == Available((DEVICE,))
    monkeypatch.setattr(descriptor, "list_devices", lambda: ())
    answer = descriptor.probe()
    assert isinstance(answer, NotHere) and "ASCEND_RT_VISIBLE_DEVICES is empty" in answer.reason


def test_a_mask_that_cannot_be_followed_is_no_absence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> tuple[DeviceInfo, ...]:
        raise ConfigError("ASCEND_RT_VISIBLE_DEVICES=7 cannot be followed")

    (tmp_path / "davinci0").touch()
    monkeypatch.setattr(descriptor, "Machine", lambda: Machine(tmp_path, tmp_path))
    monkeypatch.setattr(descriptor, "missing_software", lambda: ())
    monkeypatch.setattr(descriptor, "list_devices", refuse)
    with pytest.raises(ConfigError):
        descriptor.probe()


def test_it_is_chosen_by_itself() -> None:
    assert descriptor.plugin.name == "ascend"
    assert descriptor.plugin.auto_select
