"""The variables that stand for the machine."""

from __future__ import annotations

import tempfile

import pytest

from dougong_sim.device.environment import Environment, read_environment


def test_defaults() -> None:
    assert read_environment({}) == Environment(
        visible=(0, 1, 2, 3, 4, 5, 6, 7),
        mode="lazy",
        delay_us=0,
        memory_bytes=1 << 30,
        is_exclusive=False,
        state_dir=tempfile.gettempdir(),
    )


def test_everything_can_be_set() -> None:
    variables = {
        "SIM_DEVICE_COUNT": "3",
        "SIM_MODE": "thread",
        "SIM_DELAY_US": "2000",
        "SIM_MEMORY_BYTES": "4096",
        "SIM_EXCLUSIVE": "1",
        "SIM_STATE_DIR": "/somewhere",
    }
    assert read_environment(variables) == Environment(
        (0, 1, 2), "thread", 2000, 4096, True, "/somewhere"
    )


@pytest.mark.parametrize(
    ("mask", "visible"),
    [
        ("", ()),
        ("3", (3,)),
        ("5,2", (5, 2)),
        (" 1 , 0 ", (1, 0)),
        ("1,x,2", (1,)),
        ("1,-1,2", (1,)),
        ("8,0", ()),
        ("2,2,3", (2,)),
        ("1,,2", (1,)),
    ],
)
def test_the_mask_keeps_its_order_and_ends_at_the_first_bad_entry(
    mask: str, visible: tuple[int, ...]
) -> None:
    assert read_environment({"SIM_VISIBLE_DEVICES": mask}).visible == visible


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SIM_MODE", "fast"),
        ("SIM_DELAY_US", "soon"),
        ("SIM_MEMORY_BYTES", "1GB"),
        ("SIM_DEVICE_COUNT", "17"),
    ],
)
def test_what_cannot_be_understood_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=.*{value}"):
        read_environment({name: value})
