"""A lane's table: only what was shown, by evidence about its wheel, and never green for nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dougong_conformance.ladder import lane_report
from dougong_conformance.ladder.lane_report import LaneReport, main, read_lane, to_json
from dougong_conformance.report.ladder import MEANINGS
from dougong_conformance.results import RunRecord, write_record
from tests.unit.report import made_up

EVIDENCE = {
    "format": "conformance-evidence/1",
    "rung": "L1",
    "what": "42 of 42 calls are accepted by acme 8.1",
    "command": "pytest tests/lane",
    "when": "2026-11-30T09:00:00Z",
    "result": "passed",
    "distribution": "dougong-sim",
    "version": "0.1.0",
}


def write(folder: Path, name: str = "a.json", **changes: Any) -> None:
    (folder / "evidence").mkdir(exist_ok=True)
    (folder / "evidence" / name).write_text(json.dumps({**EVIDENCE, **changes}))


def write_run(folder: Path, record: RunRecord) -> None:
    """A run of the suite on a double of the wheel."""
    plugin = replace(record.header.plugin, distribution="dougong-sim-double")
    folder.mkdir()
    write_record(replace(record, header=replace(record.header, plugin=plugin)), folder)


def read(folder: Path, tests: str = "passed", **more: Any) -> LaneReport:
    return read_lane(folder, "acme", "dougong-sim", tests=tests, **more)


def states(report: LaneReport) -> dict[str, str]:
    return {one.name: one.state for one in report.rungs if one.state != "no evidence"}


def test_evidence_reaches_its_rung_and_no_other(tmp_path: Path) -> None:
    write(tmp_path)
    report = read(tmp_path)
    assert states(report) == {"L1": "reached"}
    assert (report.verdict, report.exit_code) == ("L1; tests passed", 0)
    assert [one.name for one in report.rungs] == list(MEANINGS)


def test_a_run_on_a_double_over_the_vendors_runtime_is_l3(tmp_path: Path) -> None:
    write_run(tmp_path / "suite", made_up.passing())
    report = read(tmp_path)
    assert states(report) == {"L3": "reached"}
    assert (
        "(suite, on Simulated device 0)"
        in next(one for one in report.rungs if one.name == "L3").evidence[0]
    )


def test_a_run_with_a_replaced_runtime_is_no_rung(tmp_path: Path) -> None:
    write_run(tmp_path / "suite", made_up.without_runtime(made_up.passing()))
    report = read(tmp_path)
    assert (states(report), report.exit_code) == ({}, lane_report.EXIT_NOTHING)
    assert "the vendor's runtime was replaced" in json.dumps(to_json(report))


def test_a_run_that_failed_outweighs_one_that_passed(tmp_path: Path) -> None:
    write_run(tmp_path / "one", made_up.passing())
    write_run(tmp_path / "two", made_up.failing())
    report = read(tmp_path)
    assert (states(report)["L3"], report.exit_code) == ("failed", lane_report.EXIT_FAILED)


def test_a_run_on_another_wheel_is_for_comparison_and_counts_for_no_rung(tmp_path: Path) -> None:
    (tmp_path / "chip").mkdir()
    write_record(made_up.on_a_chip(), tmp_path / "chip")
    report = read(tmp_path)
    assert (states(report), report.problems) == ({}, ())
    assert report.others == (
        "chip is a run on acme-dougong, for comparison; it counts for no rung",
    )
    lane_report.write_lane(report, tmp_path)
    for form in ("report.md", "report.html", "report.json"):
        assert report.others[0] in (tmp_path / form).read_text()


def test_what_is_beside_the_ladder_counts_for_no_rung(tmp_path: Path) -> None:
    write(tmp_path, rung="beside")
    report = read(tmp_path)
    assert (states(report), report.exit_code) == ({}, 0)
    assert report.verdict == "no rung; tests passed"
    assert report.beside[0].what == EVIDENCE["what"]


@pytest.mark.parametrize(
    "changes", [{"result": "failed"}, {"distribution": "dougong-acme"}, {"rung": "L3"}]
)
def test_evidence_against_or_about_something_else_is_not_green(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    write(tmp_path)
    write(tmp_path, "b.json", **changes)
    assert read(tmp_path).exit_code == lane_report.EXIT_FAILED


def test_tests_that_fail_or_show_nothing_are_not_green(tmp_path: Path) -> None:
    assert read(tmp_path).exit_code == lane_report.EXIT_NOTHING
    write(tmp_path)
    assert read(tmp_path, "failed").exit_code == lane_report.EXIT_FAILED
    assert read(tmp_path, "not run").exit_code == lane_report.EXIT_NOTHING


def test_a_lane_that_did_not_run_says_so_and_reads_nothing_old(tmp_path: Path) -> None:
    write(tmp_path)
    arguments = (str(tmp_path), "--lane", "acme", "--distribution", "dougong-sim")
    assert main([*arguments, "--skipped", "no acme wheel"]) == lane_report.EXIT_NOTHING
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["verdict"] == "NOT RUN: no acme wheel"
    assert {one["state"] for one in content["ladder"]} == {"no evidence"}


def test_every_form_shows_every_rung_and_is_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, what="42 of 42 calls | <b>bind</b>")
    write(tmp_path, "b.json", rung="beside", what="the CPU build agrees with the oracle")
    arguments = (str(tmp_path), "--lane", "acme", "--distribution", "dougong-sim")
    assert main([*arguments, "--tests", "passed"]) == 0
    page = (tmp_path / "report.html").read_text()
    text = (tmp_path / "report.md").read_text()
    for form in (page, text, capsys.readouterr().out):
        assert all(name in form for name in (*MEANINGS, "the CPU build agrees"))
    assert "<b>bind</b>" not in page
    assert "calls \\| &lt;b>bind" in text
