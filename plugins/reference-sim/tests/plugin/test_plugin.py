"""What the core reads before anything is chosen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from dougong.contracts import Available, NotHere

from dougong_sim import plugin as module
from dougong_sim.plugin import plugin, probe

_IMPORTS = """
import json, sys
from dougong_sim import errors, platform, plugin
sim = platform.SimPlatform()
answers = [repr(plugin.probe())[:9], sim.claims("sim1").arch, sim.facts(0).name]
print(json.dumps([sorted({"torch", "numpy"} & set(sys.modules)), answers]))
"""


def test_probing_and_planning_import_neither_torch_nor_the_library() -> None:
    command = [sys.executable, "-c", _IMPORTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported, answers = json.loads(done.stdout)
    assert imported == []
    assert answers == ["Available", "sim1", "Simulated accelerator"]


def test_the_mask_decides_which_devices_are_seen_and_in_which_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIM_VISIBLE_DEVICES", "5,0,3")
    answer = probe()
    assert isinstance(answer, Available)
    assert [device.index for device in answer.devices] == [0, 1, 2]
    assert [device.uuid for device in answer.devices] == [
        "SIM-00000005",
        "SIM-00000000",
        "SIM-00000003",
    ]


def test_a_device_is_described_as_the_machine_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIM_DEVICE_COUNT", "2")
    monkeypatch.setenv("SIM_MEMORY_BYTES", "4096")
    answer = probe()
    assert isinstance(answer, Available)
    assert len(answer.devices) == 2
    assert {device.memory_bytes for device in answer.devices} == {4096}
    assert {(device.arch, device.driver_version) for device in answer.devices} == {("sim1", "1.0")}


def test_a_mask_that_hides_all_is_a_reason_and_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIM_VISIBLE_DEVICES", "")
    assert probe() == NotHere("SIM_VISIBLE_DEVICES or SIM_DEVICE_COUNT leaves no device")


def test_without_the_built_library_the_platform_is_not_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "find_library", lambda: None)
    answer = probe()
    assert isinstance(answer, NotHere)
    assert "was not built" in answer.reason


def test_a_simulation_is_never_chosen_by_itself() -> None:
    assert not plugin.auto_select
    assert plugin.name == "sim"


def test_the_data_file_is_in_the_package() -> None:
    assert Path(module.__file__).with_name("claims.toml").exists()
