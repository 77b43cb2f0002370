from __future__ import annotations

import pytest

from dougong.platforms.versions import check_contract_version, check_core_version


@pytest.mark.parametrize(
    "requires", [(), ("numpy",), ("dougong>=0.1,<1",), ("dougong; extra == 'x'",), ("Dougong",)]
)
def test_a_core_within_the_wheels_range_fits(requires: tuple[str, ...]) -> None:
    assert check_core_version(requires, "acme 1.2", core="0.1.0")


def test_a_core_outside_the_range_is_refused_with_both_versions_and_a_command() -> None:
    answer = check_core_version(("dougong>=2,<3",), "acme 1.2", core="0.1.0")
    assert not answer
    for part in ("acme 1.2", "<3,>=2", "dougong 0.1.0", "pip install 'dougong<3,>=2'"):
        assert part in answer.reason


def test_a_pre_release_of_the_core_counts_as_what_it_precedes() -> None:
    assert check_core_version(("dougong>=0.1",), "acme 1.2", core="0.2.0.dev1")


def test_a_requirement_for_another_machine_does_not_count() -> None:
    line = "dougong>=9; sys_platform == 'other'"
    assert check_core_version((line,), "acme 1.2", core="0.1.0")


def test_a_requirement_that_cannot_be_read_is_no_yes() -> None:
    assert "unreadable" in check_core_version(("dougong >>> 1",), "acme 1.2").reason


@pytest.mark.parametrize(("wanted", "fits"), [(">=1.0,<2", True), (">=2", False), ("==1.*", True)])
def test_the_contract_is_held_against_the_descriptor(wanted: str, fits: bool) -> None:
    assert bool(check_contract_version(wanted, "acme 1.2", contract="1.0")) is fits


def test_another_contract_major_is_refused_with_both_versions() -> None:
    reason = check_contract_version(">=2,<3", "acme 1.2", contract="1.0").reason
    assert "contract >=2,<3" in reason
    assert "contract 1.0" in reason
    assert "Install" in reason


@pytest.mark.parametrize("wanted", ["", None, 1, "one or so"])
def test_a_descriptor_that_does_not_say_its_contract_is_refused(wanted: object) -> None:
    assert ">=1.0,<2" in check_contract_version(wanted, "acme 1.2", contract="1.0").reason
