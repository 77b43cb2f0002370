"""Devices are told from the kernel's lists, and a number that is not sure is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from dougong.contracts import ConfigError

from dougong_xpu import driver
from tests.plugin.machine import A770, ARC_140V, B580, MAX_1550, UHD_770, Machine

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def listed(machine: Machine, **environment: str) -> list[tuple[int, str]]:
    devices = driver.list_devices(machine.root, environment)
    return [(one.index, one.uuid) for one in devices]


def test_a_card_is_named_by_family_and_address(machine: Machine) -> None:
    machine.add_card("0000:03:00.0", B580, tiles=(12 * GIB,))
    machine.add_drivers()
    (device,) = driver.list_devices(machine.root, {})
    assert device.arch == "bmg"
    assert device.uuid == "0000:03:00.0"
    assert device.memory_bytes == 12 * GIB
    assert device.driver_version == "1.6.33578"
    assert not device.is_integrated


def test_devices_of_other_vendors_are_no_devices(machine: Machine) -> None:
    machine.add_card("0000:01:00.0", 0x2684, vendor=0x10DE)
    assert driver.list_devices(machine.root, {}) == ()


def test_an_unknown_device_is_a_family_of_its_own(machine: Machine) -> None:
    machine.add_card("0000:03:00.0", 0x1234)
    (device,) = driver.list_devices(machine.root, {})
    assert device.arch == "pci-1234"
    assert device.memory_bytes == 0, "the kernel does not tell"


def test_devices_are_in_the_order_of_their_addresses(machine: Machine) -> None:
    for address in ("0000:9a:00.0", "0000:03:00.0", "0000:44:00.0"):
        machine.add_card(address, B580)
    assert listed(machine) == [(0, "0000:03:00.0"), (1, "0000:44:00.0"), (2, "0000:9a:00.0")]


def test_a_mask_leaves_devices_in_the_driver_s_order(machine: Machine) -> None:
    for address in ("0000:03:00.0", "0000:44:00.0", "0000:9a:00.0"):
        machine.add_card(address, B580)
    assert listed(machine, ZE_AFFINITY_MASK="2,0") == [(0, "0000:03:00.0"), (1, "0000:9a:00.0")]


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ("0,0", "a second time"),
        ("0,7", "'7' names no device"),
        ("-1", "'-1' names no device"),
        ("x", "'x' names no device"),
        ("0.1", "names parts of devices"),
        ("", "is set and empty"),
    ],
)
def test_a_mask_that_cannot_be_followed_is_refused(machine: Machine, mask: str, said: str) -> None:
    machine.add_card("0000:03:00.0", B580)
    machine.add_card("0000:44:00.0", B580)
    with pytest.raises(ConfigError) as raised:
        listed(machine, ZE_AFFINITY_MASK=mask)
    assert said in str(raised.value)


def test_each_tile_is_a_device_unless_the_hierarchy_is_of_cards(machine: Machine) -> None:
    machine.add_card("0000:29:00.0", MAX_1550, tiles=(64 * GIB, 64 * GIB))
    assert listed(machine) == [(0, "0000:29:00.0/0"), (1, "0000:29:00.0/1")]
    assert listed(machine, ZE_AFFINITY_MASK="1") == [(0, "0000:29:00.0/1")]
    composite = {"ZE_FLAT_DEVICE_HIERARCHY": "composite"}
    assert listed(machine, **composite) == [(0, "0000:29:00.0")]
    (whole,) = driver.list_devices(machine.root, composite)
    assert whole.memory_bytes == 128 * GIB
    assert driver.list_devices(machine.root, {})[0].memory_bytes == 64 * GIB


def test_an_unknown_hierarchy_is_refused(machine: Machine) -> None:
    machine.add_card("0000:29:00.0", MAX_1550)
    with pytest.raises(ConfigError, match="none of FLAT, COMBINED, COMPOSITE"):
        listed(machine, ZE_FLAT_DEVICE_HIERARCHY="TREE")


def test_integrated_devices_count_only_where_there_are_no_others(machine: Machine) -> None:
    machine.add_card("0000:00:02.0", UHD_770)
    assert listed(machine) == [(0, "0000:00:02.0")]
    machine.add_card("0000:03:00.0", B580)
    assert listed(machine) == [(0, "0000:03:00.0")]


def test_a_family_inside_processors_is_integrated_wherever_it_stands() -> None:
    assert driver.Card("0000:03:00.0", ARC_140V, "renderD128").is_integrated


def test_unlike_devices_need_an_order_that_is_known(machine: Machine) -> None:
    machine.add_card("0000:03:00.0", A770)
    machine.add_card("0000:44:00.0", B580)
    with pytest.raises(ConfigError, match="ZE_ENABLE_PCI_ID_DEVICE_ORDER=1"):
        listed(machine)
    ordered = {"ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1"}
    assert listed(machine, **ordered) == [(0, "0000:03:00.0"), (1, "0000:44:00.0")]
    assert listed(machine, ZE_AFFINITY_MASK="1", **ordered) == [(0, "0000:44:00.0")]


def test_a_mask_over_unlike_devices_needs_it_too(machine: Machine) -> None:
    machine.add_card("0000:00:02.0", UHD_770)
    machine.add_card("0000:03:00.0", B580)
    with pytest.raises(ConfigError, match="counts in an order that is not known"):
        listed(machine, ZE_AFFINITY_MASK="0")


def test_libraries_are_found_on_the_loader_s_path_first(machine: Machine, tmp_path: Path) -> None:
    machine.add_drivers()
    own = tmp_path / "opt"
    own.mkdir()
    (own / "libze_loader.so.1").touch()
    found = driver.find_loader(machine.root, {"LD_LIBRARY_PATH": str(own)})
    assert found == own / "libze_loader.so.1"
    assert driver.find_loader(machine.root, {}) != found
