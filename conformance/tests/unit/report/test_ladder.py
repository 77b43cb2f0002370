from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dougong_conformance.outcomes import Outcome
from dougong_conformance.report.html import to_html
from dougong_conformance.report.ladder import (
    MEANINGS,
    climb,
    evidence_from_json,
    highest_of_run,
    read_evidence,
)
from dougong_conformance.report.markdown import to_markdown
from dougong_conformance.report.model import make_report
from dougong_conformance.results import RunRecord
from tests.unit.report import made_up

GOOD = {
    "format": "conformance-evidence/1",
    "rung": "L0",
    "what": "87 of 87 calls bind to the schemas of acme 8.1",
    "command": "pytest tests/schemas",
    "when": "2026-11-30T09:00:00Z",
    "result": "passed",
    "distribution": "dougong-sim",
    "version": "0.1.0",
}


def write(folder: Path, name: str = "a.json", **changes: Any) -> None:
    (folder / "evidence").mkdir(exist_ok=True)
    (folder / "evidence" / name).write_text(json.dumps({**GOOD, **changes}))


def rungs(record: RunRecord, folder: Path | None = None) -> dict[str, tuple[str, str]]:
    evidence, _ = read_evidence(folder, record) if folder else ((), ())
    return {one.name: (one.state, "; ".join(one.evidence)) for one in climb(record, evidence)}


def test_without_evidence_every_other_rung_says_so() -> None:
    found = rungs(made_up.passing())
    assert list(found) == list(MEANINGS)
    assert [name for name, (state, _) in found.items() if state != "no evidence"] == ["L3"]


def test_a_double_gives_l3_and_never_l6() -> None:
    found = rungs(made_up.passing())
    assert found["L3"][0] == "reached"
    assert found["L6"] == ("no evidence", "this run was on a device double, which is no chip")
    assert highest_of_run(climb(made_up.passing())) == "L3"


def test_a_double_without_the_vendors_runtime_gives_no_rung_and_says_what_it_was() -> None:
    for record in (made_up.passing(), made_up.failing()):
        replaced = made_up.without_runtime(record)
        (state, said), on_chip = (rungs(replaced)[name] for name in ("L3", "L6"))
        assert state == on_chip[0] == "no evidence"
        assert "engine on the simulated device (sim); the vendor's runtime was replaced" in said
        assert highest_of_run(climb(replaced)) == "none"


def test_what_is_beside_the_ladder_is_shown_and_reaches_no_rung(tmp_path: Path) -> None:
    write(tmp_path, rung="beside", what="12 kernels of the CPU build agree with the oracle")
    assert rungs(made_up.passing(), tmp_path) == rungs(made_up.passing())
    report = make_report(made_up.passing(), tmp_path, made_up.requirements())
    for page in (to_markdown(report), to_html(report)):
        assert "Beside the ladder, no rung: 12 kernels of the CPU build agree" in page


def test_a_device_gives_l6_and_never_l3() -> None:
    found = rungs(made_up.on_a_chip())
    assert found["L6"][0] == "reached"
    assert "on Acme B1, none failed; suite 1.0.20261130" in found["L6"][1]
    assert found["L3"][0] == "no evidence"
    assert highest_of_run(climb(made_up.on_a_chip())) == "L6"


def test_l3_needs_greedy_equality_and_a_passed_engine_profile() -> None:
    record = made_up.passing()
    without = [one for one in record.results if "greedy_equality" not in one.id]
    assert rungs(made_up.record(without))["L3"][0] == "no evidence"
    wrong = [
        replace(one, outcome=Outcome.FAIL, reason="token 7") if "greedy_equality" in one.id else one
        for one in record.results
    ]
    assert rungs(made_up.record(wrong))["L3"][0] == "failed"
    assert rungs(made_up.failing())["L3"] == ("failed", "the engine profile is incomplete")
    assert rungs(replace(record, footer=replace(record.footer, exit_code=1)))["L3"][0] == (
        "no evidence"
    )


@pytest.mark.parametrize("code", [1, 3, 4, 5, 6, 7])
def test_no_rung_is_reached_by_a_run_that_did_not_end_well(code: int) -> None:
    for record in (made_up.passing(), made_up.on_a_chip()):
        ended = replace(record, footer=replace(record.footer, exit_code=code))
        assert highest_of_run(climb(ended)) == "none"
        (rung,) = [one for one in climb(ended) if one.name == "L6"]
        is_against = code in {1, 6} and not record.header.is_double
        assert rung.state == ("failed" if is_against else "no evidence")


def test_a_partial_run_on_a_chip_is_no_l6() -> None:
    chip = made_up.on_a_chip()
    head = replace(chip.header, selection=made_up.smoke().header.selection, mode="smoke")
    assert rungs(replace(chip, header=head))["L6"][0] == "no evidence"


def test_core_with_waivers_is_no_l6() -> None:
    chip = made_up.on_a_chip()
    waived = [
        replace(one, outcome=Outcome.WAIVED, reason="known", waiver="A-1")
        if one.id == "ops.linear[float16]"
        else one
        for one in chip.results
    ]
    record = made_up.record(waived, chip.header)
    assert record.footer.exit_code == 0
    assert rungs(record)["L6"] == ("no evidence", "Core passed with waivers only")


def test_evidence_of_the_vendor_reaches_a_rung_and_is_shown(tmp_path: Path) -> None:
    write(tmp_path)
    write(
        tmp_path, "b.json", rung="L4", result="failed", what="2 of 90 kernels need more registers"
    )
    found = rungs(made_up.passing(), tmp_path)
    assert found["L0"][0] == "reached"
    assert "87 of 87 calls bind" in found["L0"][1]
    assert found["L4"][0] == "failed"
    assert found["L1"] == ("no evidence", "")


def test_evidence_against_a_rung_outweighs_evidence_for_it(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, "b.json", result="failed")
    assert rungs(made_up.passing(), tmp_path)["L0"][0] == "failed"


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"rung": "L3"}, "rung"),
        ({"rung": "L6"}, "rung"),
        ({"format": "x"}, "format"),
        ({"what": "ok"}, "what"),
        ({"result": "green"}, "result"),
        ({"when": "yesterday"}, "when"),
        ({"trust": "me"}, "trust"),
    ],
)
def test_evidence_that_does_not_fit_its_schema_does_not_count(
    tmp_path: Path, changes: dict[str, Any], place: str
) -> None:
    write(tmp_path, **changes)
    evidence, problems = read_evidence(tmp_path, made_up.passing())
    assert evidence == ()
    assert len(problems) == 1
    assert problems[0].startswith("a.json does not count: ")
    assert place in problems[0]


def test_evidence_about_another_wheel_does_not_count(tmp_path: Path) -> None:
    write(tmp_path, version="0.0.9")
    (tmp_path / "evidence" / "broken.json").write_text("{")
    evidence, problems = read_evidence(tmp_path, made_up.passing())
    assert evidence == ()
    assert "it is about dougong-sim 0.0.9" in problems[0]
    assert problems[1].startswith("broken.json does not count")


def test_what_else_a_test_knows_is_allowed_and_not_shown() -> None:
    assert evidence_from_json({**GOOD, "details": {"calls": 87}}).rung == "L0"
