"""``docs/support.md`` is made of what the wheels state, and they state nothing without a test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.support_page import (
    PAGE,
    Wheel,
    lane_problems,
    page,
    problems_of,
    read_wheels,
)

STATED: dict[str, Any] = {
    "distribution": "dougong-acme",
    "driver": "acme driver 7",
    "torch": "2.13",
    "chips": {"acme1": "Acme 1000"},
    "rung": [
        {"rung": "L1", "shown": "the wheel's schemas take every call", "by": "tests/test_lane.py",
         "lane": "acme", "packages": ["acme-rt 8.1"], "families": ["acme1"]},
        {"rung": "L0", "shown": "every call binds", "by": "tests/test_calls.py"},
        {"rung": "beside", "shown": "more", "by": "tests/test_calls.py"},
    ],
    "profile": [
        {"name": "ops", "on": "the simulated device", "by": "tests/test_calls.py",
         "families": ["acme1"]},
    ],
}  # fmt: skip
PLANTED: dict[str, tuple[str, int, dict[str, Any], str]] = {
    "a rung that there is not": ("rung", 1, {"rung": "L7"}, "there is no rung L7"),
    "a rung without the vendor's packages": ("rung", 1, {"rung": "L2"}, "L2 is shown in a lane"),
    "a chip that nobody ran on": ("rung", 1, {"rung": "L6"}, "L6 is shown in a lane"),
    "a file that is gone": ("rung", 1, {"by": "tests/test_gone.py"}, "there is no file"),
    "a file without tests": ("rung", 1, {"by": "tests/lib.py"}, "tests/lib.py has no tests"),
    "a lane that there is not": ("rung", 0, {"lane": "acme2"}, "lane.toml has no lane acme2"),
    "a lane's test without the lane": ("profile", 0, {"by": "tests/test_lane.py"}, "is marked as"),
    "a test of no lane": ("rung", 0, {"by": "tests/test_calls.py"}, "not marked as a lane's"),
    "another rung than the lane writes": ("rung", 0, {"rung": "L2"}, "no evidence of L2"),
    "an unknown family": ("profile", 0, {"families": ["acme2"]}, "acme2 is not in its claims"),
    "an unknown key": ("rung", 1, {"show": "x"}, "show is no key of it"),
}


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    """All is well with it."""
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "lib.py").write_text("\ndef helper(): ...\n")
    (tests / "test_calls.py").write_text("\ndef test_calls(): ...\n")
    (tests / "test_lane.py").write_text(
        'pytestmark = pytest.mark.lane\n\ndef test_it():\n    with shows("L1", "x"): ...\n'
    )
    return Wheel(
        folder=tmp_path,
        version="0.2.0",
        core=">=0.1,<0.2",
        families=("acme1", "acme2x"),
        lanes=frozenset({"acme"}),
        stated=STATED,
    )


def test_the_page_is_what_the_wheels_state() -> None:
    wheels = read_wheels()
    assert [problem for wheel in wheels for problem in problems_of(wheel)] == []
    assert PAGE.read_text("utf-8") == page(wheels), (
        "make it again: python core/tests/architecture/support_page.py --write"
    )


def test_every_vendors_wheel_is_on_it() -> None:
    named = {wheel.distribution for wheel in read_wheels()}
    assert named == {"dougong-ascend", "dougong-xpu", "dougong-rocm"}


def test_a_family_has_the_rungs_that_were_shown_of_it_and_no_others(wheel: Wheel) -> None:
    assert list(problems_of(wheel)) == []
    lines = page([wheel]).splitlines()
    rows = {line.split("|")[1].strip(): line for line in lines if line.startswith("| `acme")}
    assert "| L0 L1* | ops |" in rows["`acme1`"]
    assert "Acme 1000 | dougong-acme 0.2.0 | acme driver 7 | 2.13 | `>=0.1,<0.2`" in rows["`acme1`"]
    assert "| L0 | none |" in rows["`acme2x`"]
    assert "Not shown: L2, L3, L4, L5, L6." in lines


def test_a_family_of_which_nothing_was_shown_says_none(wheel: Wheel) -> None:
    bare = replace(wheel, stated={**STATED, "rung": STATED["rung"][:1], "profile": []})
    assert "| none | none |" in page([bare])


@pytest.mark.parametrize("case", PLANTED)
def test_what_cannot_be_so_is_told(wheel: Wheel, case: str) -> None:
    kind, index, change, told = PLANTED[case]
    entries = [*STATED[kind]]
    entries[index] = {**entries[index], **change}
    assert any(told in one for one in problems_of(replace(wheel, stated={**STATED, kind: entries})))


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("reached", []),
        ("failed", ["L1 is stated as shown in lane acme, and its report says: failed"]),
        ("no evidence", ["L1 is stated as shown in lane acme, and its report says: no evidence"]),
    ],
)
def test_what_a_lane_did_not_show_cannot_be_stated_of_it(
    wheel: Wheel, state: str, told: list[str]
) -> None:
    report = {"ladder": [{"rung": "L0", "state": "failed"}, {"rung": "L1", "state": state}]}
    found = list(lane_problems(wheel, "acme", report))
    assert [one.partition(": ")[2] for one in found] == told
    assert list(lane_problems(wheel, "another", report)) == []


def test_a_chip_of_an_unknown_family_and_a_missing_key_are_told(wheel: Wheel) -> None:
    stated = {**STATED, "chips": {"acme9": "x"}}
    del stated["torch"]
    told = list(problems_of(replace(wheel, stated=stated)))
    assert any("torch is missing" in one for one in told)
    assert any("chips names acme9" in one for one in told)
