from __future__ import annotations

import pytest

from dougong.contracts import DeviceInfo, PluginError
from dougong.errors import PlatformSelectionError
from dougong.platforms.devices import check_mask, choose_devices, host_ids, mask_for, parse_mask

GIB = 1 << 30


def _device(index: int, memory: int = 8 * GIB, *, is_integrated: bool = False) -> DeviceInfo:
    return DeviceInfo(
        index=index,
        name="integrated" if is_integrated else "card",
        uuid=f"u{index}",
        memory_bytes=memory,
        is_integrated=is_integrated,
    )


ALIKE = tuple(_device(index) for index in range(4))


def test_devices_that_are_alike_are_all_used_in_order() -> None:
    assert choose_devices(ALIKE, None, "acme") == (ALIKE, ())


def test_a_sliver_of_memory_makes_no_card_unlike() -> None:
    devices = (_device(0), _device(1, 8 * GIB - (8 << 20)))
    assert choose_devices(devices, None, "acme")[0] == devices


def test_a_discrete_device_ranks_above_a_larger_integrated_one_and_says_so() -> None:
    devices = (_device(0, 64 * GIB, is_integrated=True), _device(1, 8 * GIB))
    chosen, (reason,) = choose_devices(devices, None, "acme")
    assert chosen == devices[1:]
    assert "1 card (discrete, 8.0 GiB) ranks first" in reason
    assert "left out: 0 integrated (integrated, 64.0 GiB)" in reason


def test_of_discrete_ones_those_with_most_memory_are_used() -> None:
    devices = (_device(0), _device(1, 16 * GIB), _device(2, 16 * GIB))
    assert choose_devices(devices, None, "acme")[0] == devices[1:]


@pytest.mark.parametrize(
    ("wanted", "indices"),
    [("2", [2]), ("3,1", [3, 1]), ("u2, 0", [2, 0]), ("0,1,2,3", [0, 1, 2, 3])],
)
def test_a_list_is_obeyed_in_its_order(wanted: str, indices: list[int]) -> None:
    chosen, (reason,) = choose_devices(ALIKE, wanted, "acme")
    assert [device.index for device in chosen] == indices
    assert "asked for" in reason


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("", "empty entry"),
        ("0,,1", "empty entry"),
        ("4", r"'4', which platform 'acme' does not have\. It has: 0 \(u0\)"),
        ("-1", "'-1'"),
        ("u9", "'u9'"),
        ("1,1", "device 1 twice"),
        ("1,u1", "device 1 twice"),
    ],
)
def test_a_list_that_cannot_be_obeyed_is_refused(wanted: str, told: str) -> None:
    with pytest.raises(PlatformSelectionError, match=told):
        choose_devices(ALIKE, wanted, "acme")


def test_a_mixture_of_unlike_devices_is_refused_naming_both() -> None:
    devices = (_device(0), _device(1, 16 * GIB))
    with pytest.raises(PlatformSelectionError, match=r"0 card .* and 1 card"):
        choose_devices(devices, "0,1", "acme")
    assert choose_devices(devices, "0", "acme")[0] == devices[:1]


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        (None, None),
        ("", ()),
        ("4,5,6,7", ("4", "5", "6", "7")),
        (" 6, 4", ("6", "4")),
        ("9", ("9",)),
    ],
)
def test_a_mask_keeps_its_order_and_empty_means_no_device(
    text: str | None, mask: tuple[str, ...] | None
) -> None:
    assert parse_mask("FAKE", text) == mask


@pytest.mark.parametrize(("text", "told"), [("4,4", "twice"), ("4,,5", "empty entry")])
def test_a_senseless_mask_is_refused(text: str, told: str) -> None:
    with pytest.raises(PlatformSelectionError, match=told):
        parse_mask("FAKE", text)


def test_a_mask_is_held_against_what_lies_behind_it() -> None:
    check_mask("FAKE", None, ALIKE, "acmeplat 1.0")
    check_mask("FAKE", ("4", "5", "6", "7"), ALIKE, "acmeplat 1.0")
    with pytest.raises(PlatformSelectionError, match=r"FAKE=9 names 1 devices.*out of range"):
        check_mask("FAKE", ("9",), (), "acmeplat 1.0")
    with pytest.raises(PluginError, match="found 4 devices and FAKE=6,4 leaves 2"):
        check_mask("FAKE", ("6", "4"), ALIKE, "acmeplat 1.0")


def test_reports_and_masks_of_children_speak_of_the_hosts_ids() -> None:
    mask = parse_mask("FAKE", "6,4,7,5")
    assert host_ids(mask, ALIKE) == ("6", "4", "7", "5")
    assert host_ids(None, ALIKE[2:]) == ("2", "3")
    groups = [mask_for(mask, ALIKE[:2]), mask_for(mask, ALIKE[2:])]
    assert groups == ["6,4", "7,5"]
    assert not set(groups[0].split(",")) & set(groups[1].split(","))
