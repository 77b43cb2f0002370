from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dougong.cli.explain_diff import compare, print_comparison
from dougong.errors import ConfigError, PlatformSelectionError
from dougong.planner import ExecutionMode, ExecutionPlan
from dougong.planner.record import plan_to_json
from tests.support.made_up_plans import chip_plan, plain_plan


class _Planner:
    """Gives one plan, and remembers what it was asked."""

    def __init__(self, plan: ExecutionPlan | ConfigError) -> None:
        self.plan = plan
        self.asked: list[tuple[dict[str, Any], Path | None]] = []

    def __call__(self, changes: Mapping[str, Any], file: Path | None) -> ExecutionPlan:
        self.asked.append((dict(changes), file))
        if isinstance(self.plan, ConfigError):
            raise self.plan
        return self.plan


def _saved(folder: Path, plan: ExecutionPlan) -> str:
    file = folder / "plan.json"
    file.write_text(plan_to_json(plan), "utf-8")
    return str(file)


def test_a_saved_plan_is_read_and_nothing_is_planned(tmp_path: Path) -> None:
    planner = _Planner(chip_plan())
    comparison = compare(plain_plan(), _saved(tmp_path, plain_plan()), planner)
    assert comparison.kind == "saved plan"
    assert comparison.found == ()
    assert planner.asked == []


def test_the_other_plan_is_the_old_one(tmp_path: Path) -> None:
    mode = ExecutionMode("decode", "the platform captures decode steps")
    earlier = replace(plain_plan(), mode=mode)
    comparison = compare(plain_plan(), _saved(tmp_path, earlier), _Planner(plain_plan()))
    told = comparison.to_json()["differences"]
    assert any("decode" in str(one["other"]) and "none" in str(one["here"]) for one in told)


def test_a_capability_file_is_planned_for_without_the_platform_of_this_side(tmp_path: Path) -> None:
    file = tmp_path / "chip.json"
    file.write_text(json.dumps({"format": "dougong-capabilities", "version": 1}), "utf-8")
    planner = _Planner(chip_plan())
    comparison = compare(plain_plan(), str(file), planner)
    assert comparison.kind == "capability file"
    assert comparison.other.platform == "acme"
    assert planner.asked == [({"platform": None, "devices": None, "plan": None}, file)]


def test_a_name_is_a_platform() -> None:
    planner = _Planner(chip_plan())
    comparison = compare(plain_plan(), "acme", planner)
    assert comparison.kind == "platform"
    assert planner.asked == [({"platform": "acme", "devices": None, "plan": None}, None)]


def test_a_platform_that_is_not_there_is_refused_in_the_name_of_the_option() -> None:
    refused = PlatformSelectionError("no platform acme is installed; cpu is.")
    with pytest.raises(ConfigError, match=r"--diff acme: .*no platform acme is installed"):
        compare(plain_plan(), "acme", _Planner(refused))


@pytest.mark.parametrize("name", ["plan.json", "folder/acme", "./acme"])
def test_a_file_that_is_not_there_is_not_taken_for_a_platform(name: str) -> None:
    planner = _Planner(chip_plan())
    with pytest.raises(ConfigError, match="there is no such file"):
        compare(plain_plan(), name, planner)
    assert planner.asked == []


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"no json", b"[]", b'{"format": "other"}'])
def test_a_file_that_is_neither_plan_nor_capabilities_is_refused(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"plan\.json|plan"):
        compare(plain_plan(), str(file), _Planner(chip_plan()))


def test_differences_stand_side_by_side_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    comparison = compare(plain_plan(), "acme", _Planner(chip_plan()))
    print_comparison(comparison)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == f"demo: {len(comparison.found)} differences"
    assert "here: cpu" in lines[1]
    assert "platform acme: acme, of" in lines[1]
    text = " ".join(" ".join(lines).split())
    assert [one.field for one in comparison.found if one.field not in text] == []
    assert "cpu/native" in text
    assert "acme/flash" in text


def test_plans_that_are_the_same_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(compare(plain_plan(), "cpu", _Planner(plain_plan())))
    assert capsys.readouterr().out.splitlines()[0] == "demo: no difference"


def test_json_has_both_sides_of_each_difference() -> None:
    comparison = compare(plain_plan(), "acme", _Planner(chip_plan()))
    data = json.loads(json.dumps(comparison.to_json()))
    assert data["platform"] == "cpu"
    assert data["other"] == {
        "name": "acme", "kind": "platform", "platform": "acme",
        "model": "acme-labs/converted-7b-instruct",
    }  # fmt: skip
    assert len(data["differences"]) == len(comparison.found) > 0
    assert set(data["differences"][0]) == {"field", "here", "other", "why"}
