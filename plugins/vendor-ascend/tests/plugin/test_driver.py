"""What is told of the devices without opening one."""

from __future__ import annotations

from pathlib import Path

import pytest
from dougong.contracts import ConfigError

from dougong_ascend import driver
from dougong_ascend.driver import Machine, list_devices, read_visible_devices
from dougong_ascend.families import family_of_bus_id, family_of_name, family_of_soc
from dougong_ascend.management import Chip, read_table

A2_TABLE = """
+-------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc2                 Version: 24.1.rc2                                        |
+---------------------------+---------------+-----------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)      Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)   |
+===========================+===============+===============================================+
| 0     910B3               | OK            | 92.2        48           0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3390 / 65536    |
+===========================+===============+===============================================+
| 1     910B3               | OK            | 90.1        47           0    / 0             |
| 0                         | 0000:01:00.0  | 0           0    / 0          3389 / 65536    |
+---------------------------+---------------+-----------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB) |
| No running processes found in NPU 0                                                       |
"""
A3_TABLE = """
| npu-smi 25.2.0                   Version: 25.2.0                                          |
| 0     Ascend910           | OK            | 170.6       41           0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          3144 / 65536    |
| 0     Ascend910           | OK            | -           38           0    / 0             |
| 1     1                   | 0000:9F:00.0  | 0           0    / 0          2875 / 65536    |
"""
DUO_TABLE = """
| npu-smi 23.0.0                   Version: 23.0.0                                          |
| 8     310P3               | OK            | NA          45           0     / 0            |
| 0     0                   | 0000:3B:00.0  | 0           1371 / 44280                      |
"""


def machine(folder: Path, *, devices: int, bus_ids: tuple[int, ...] = ()) -> Machine:
    (folder / "dev").mkdir()
    for name in ("davinci_manager", "davinci_manager_docker", "hisi_hdc", "null"):
        (folder / "dev" / name).touch()
    for index in range(devices):
        (folder / "dev" / f"davinci{index}").touch()
    for number, device_id in enumerate((*bus_ids, 0x1533)):
        function = folder / "bus" / f"0000:{number:02x}:00.0"
        function.mkdir(parents=True)
        vendor = 0x8086 if device_id == 0x1533 else 0x19E5
        (function / "vendor").write_text(f"{vendor:#06x}\n")
        (function / "device").write_text(f"{device_id:#06x}\n")
    return Machine(folder / "dev", folder / "bus")


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No management tool, no driver file."""
    monkeypatch.setattr(driver, "ask_management", lambda: ("", ()))
    monkeypatch.setattr(driver, "driver_version", lambda: "")


@pytest.mark.parametrize(
    ("table", "version", "chips"),
    [
        (A2_TABLE, "24.1.rc2", (Chip("910B3", 65536 * 2**20),) * 2),
        (A3_TABLE, "25.2.0", (Chip("Ascend910", 65536 * 2**20),) * 2),
        (DUO_TABLE, "23.0.0", (Chip("310P3", 44280 * 2**20),)),
        ("", "", ()),
        ("dcmi module initialize failed. ret is -8005", "", ()),
    ],
    ids=["a2", "a3", "310p", "empty", "failed"],
)
def test_the_management_tool_s_table_is_read(
    table: str, version: str, chips: tuple[Chip, ...]
) -> None:
    assert read_table(table) == (version, chips)


def test_devices_have_what_tool_bus_and_driver_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "ask_management", lambda: read_table(A3_TABLE))
    monkeypatch.setattr(driver, "driver_version", lambda: "25.2.0.1")
    here = machine(tmp_path, devices=2, bus_ids=(0xD803, 0xD803))
    found = list_devices(here, {"ASCEND_RT_VISIBLE_DEVICES": "1"})
    (device,) = found
    assert (device.index, device.name, device.arch) == (0, "Ascend910", "a3")
    assert (device.memory_bytes, device.driver_version) == (64 * 2**30, "25.2.0.1")
    assert not device.is_integrated


@pytest.mark.usefixtures("silent")
def test_without_any_tool_devices_are_still_counted(tmp_path: Path) -> None:
    found = list_devices(machine(tmp_path, devices=8), {})
    assert [device.index for device in found] == list(range(8))
    assert {(one.name, one.arch, one.memory_bytes) for one in found} == {("Ascend NPU", "", 0)}


def test_a_tool_that_counts_other_devices_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "ask_management", lambda: read_table(A2_TABLE))
    (device,) = list_devices(machine(tmp_path, devices=1, bus_ids=(0xD802,)), {})
    assert (device.name, device.arch, device.memory_bytes) == ("Ascend NPU", "910b", 0)


@pytest.mark.usefixtures("silent")
def test_unlike_chips_on_the_bus_tell_no_family(tmp_path: Path) -> None:
    found = list_devices(machine(tmp_path, devices=2, bus_ids=(0xD802, 0xD500)), {})
    assert {device.arch for device in found} == {""}


@pytest.mark.usefixtures("silent")
def test_a_machine_without_device_files_has_none(tmp_path: Path) -> None:
    assert list_devices(machine(tmp_path, devices=0), {}) == ()
    assert list_devices(Machine(tmp_path / "absent", tmp_path / "absent"), {}) == ()


@pytest.mark.parametrize(
    ("mask", "visible"),
    [(None, (0, 1, 2, 3)), ("", ()), (" ", ()), ("2", (2,)), ("0,3", (0, 3)), ("1, 2", (1, 2))],
)
def test_a_mask_leaves_what_it_names(mask: str | None, visible: tuple[int, ...]) -> None:
    assert read_visible_devices(mask, 4) == visible


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        ("1,1", "a second time"),
        ("0,4", "'4' names no device"),
        ("npu0", "'npu0' names no device"),
        ("-1", "'-1' names no device"),
        ("3,1", r"not in ascending order.*set ASCEND_RT_VISIBLE_DEVICES=1,3"),
    ],
)
def test_a_mask_that_the_runtime_would_cut_short_is_refused(mask: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"(?s)ASCEND_RT_VISIBLE_DEVICES={mask}.*{problem}"):
        read_visible_devices(mask, 4)


@pytest.mark.parametrize(
    ("number", "family"),
    [(220, "910b"), (225, "910b"), (250, "a3"), (255, "a3"), (200, "310p"), (205, "310p"),
     (260, "a5"), (219, "soc-219"), (226, "soc-226"), (104, "soc-104"), (-1, "soc--1")],
)  # fmt: skip
def test_families_by_the_runtime_s_numbers(number: int, family: str) -> None:
    assert family_of_soc(number) == family


@pytest.mark.parametrize(
    ("name", "family"),
    [("Ascend910B2", "910b"), ("910B4-1", "910b"), ("910B", "910b?"), ("Ascend910", "ascend910"),
     ("Ascend910_9391", "a3"), ("9392", "a3"), ("310P3", "310p"), ("Ascend310P1", "310p"),
     ("310B4", "310b4"), ("Ascend950PR_9589", "a5"), ("Ascend910A", "ascend910a"), ("", "")],
)  # fmt: skip
def test_families_by_name(name: str, family: str) -> None:
    assert family_of_name(name) == ("910b" if family == "910b" else family.rstrip("?"))


def test_families_by_bus_id() -> None:
    assert [family_of_bus_id(one) for one in (0xD500, 0xD802, 0xD803, 0xD801)] == [
        "310p",
        "910b",
        "a3",
        "",
    ]
