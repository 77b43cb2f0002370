"""Masks of visible devices: order, uuids, and entries that name nothing."""

from __future__ import annotations

import pytest

from dougong.contracts import ConfigError, read_device_mask

UUIDS = ("GPU-3f1c", "GPU-3faa", "GPU-90b2", "")


def mask(
    text: str | None, *, stops_at_unknown: bool = False, keeps_order: bool = True
) -> list[int]:
    """Devices that are left of four."""
    found = read_device_mask(
        text,
        UUIDS,
        variable="ACME_VISIBLE_DEVICES",
        stops_at_unknown=stops_at_unknown,
        keeps_order=keeps_order,
    )
    return list(found)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        (" ", []),
        ("2,0", [2, 0]),
        (" 3 , 1", [3, 1]),
        ("GPU-90b2,0", [2, 0]),
        ("gpu-9", [2]),
        ("GPU-3f1c", [0]),
    ],
)
def test_entries_are_indices_or_uuids_and_their_order_counts(
    text: str | None, left: list[int]
) -> None:
    assert mask(text) == left


def test_a_mask_that_is_a_set_keeps_the_order_of_the_driver() -> None:
    assert mask("2,0", keeps_order=False) == [0, 2]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0,4", "'4' names no device"),
        ("-1", "'-1' names no device"),
        ("0,,1", "'' names no device"),
        ("GPU-3f", "'GPU-3f' names more than one device"),
        ("1,1", "'1' names device 1 a second time"),
        ("GPU-90b2,2", "'2' names device 2 a second time"),
        ("\u0662", "names no device"),
    ],
)
def test_an_entry_that_does_not_name_one_device_is_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        mask(text)
    assert "ACME_VISIBLE_DEVICES=" in str(raised.value) and "0 GPU-3f1c" in str(raised.value)
    assert told in str(raised.value)


@pytest.mark.parametrize(("text", "left"), [("0,9,1", [0]), ("-1", []), ("1,no,1", [1])])
def test_a_runtime_that_ends_the_list_at_an_unknown_entry_is_followed(
    text: str, left: list[int]
) -> None:
    assert mask(text, stops_at_unknown=True) == left


def test_a_device_named_twice_is_refused_there_too() -> None:
    with pytest.raises(ConfigError, match="a second time"):
        mask("1,1", stops_at_unknown=True)
