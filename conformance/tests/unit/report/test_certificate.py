from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from dougong_conformance.outcomes import Outcome
from dougong_conformance.report.certificate import (
    FORMAT,
    a_year_later,
    canonical_sha256,
    certificate,
    problems,
    read_certificate,
    why_not,
    write_certificate,
)
from dougong_conformance.report.model import Report, make_report
from dougong_conformance.results import RunRecord
from tests.unit.report import made_up

EXAMPLE = Path(__file__).parents[4] / "docs" / "certificate" / "conformance-certificate.json"
SHA = "b1ec" * 16


def report(record: RunRecord) -> Report:
    return make_report(record, requirements=made_up.requirements())


def test_the_published_example_has_the_fields_that_are_written() -> None:
    example = read_certificate(EXAMPLE)
    written = certificate(report(made_up.on_a_chip()), SHA)
    assert example.keys() == written.keys()
    for name, value in written.items():
        assert type(example[name]) is type(value), name
        if isinstance(value, dict) and name != "profiles":
            assert example[name].keys() == value.keys(), name


def test_a_certificate_says_what_the_run_showed_and_no_more() -> None:
    told = certificate(report(made_up.passing()), SHA)
    assert told["format"] == FORMAT
    assert (told["platform"], told["distribution"], told["version"]) == (
        *("sim", "dougong-sim", "0.1.0"),
    )
    assert (told["rung"], told["is_double"]) == ("L3", True)
    assert certificate(report(made_up.on_a_chip()), SHA)["rung"] == "L6"
    assert told["architectures"] == ["sim1"]
    assert told["extended"] == {"passed": 10, "claimed": 10, "offered": 12, "waived": 0}
    assert (told["issued"], told["expires"]) == ("2026-11-30", "2027-11-30")
    rest = {name: value for name, value in told.items() if name != "sha256"}
    assert told["sha256"] == canonical_sha256(rest)


def _header(record: RunRecord, **changes: Any) -> RunRecord:
    return replace(record, header=replace(record.header, **changes))


def _plugin(record: RunRecord, **changes: Any) -> RunRecord:
    return _header(record, plugin=replace(record.header.plugin, **changes))


GOOD = made_up.passing()
REFUSED = {
    "this was `run`; only `certify`": _header(GOOD, mode="run"),
    "not asked for the whole suite": _header(GOOD, selection=made_up.smoke().header.selection),
    "exit code 6": made_up.failing(),
    "exit code 5": made_up.empty(),
    "Core is incomplete": replace(
        GOOD, footer=replace(GOOD.footer, core=made_up.empty().footer.core)
    ),
    "tampered": _header(GOOD, tampering=("pytest plugin",)),
    "was tampered": _plugin(GOOD, tampered=("dougong_sim/platform.py",)),
    "editable": _plugin(GOOD, is_editable=True),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_run_that_did_not_earn_one_gets_none_and_the_reason(reason: str) -> None:
    made = report(REFUSED[reason])
    assert reason in why_not(made, SHA)
    with pytest.raises(ValueError, match=reason):
        certificate(made, SHA)


def test_a_wheel_without_a_record_gets_none() -> None:
    assert "has no RECORD" in why_not(report(GOOD), "")


def test_waived_cases_are_named_in_it() -> None:
    rows = [
        replace(one, outcome=Outcome.WAIVED, reason="known", waiver="SIM-1")
        if one.id == "ops.linear[float16]"
        else one
        for one in GOOD.results
    ]
    told = certificate(report(made_up.record(rows)), SHA)
    assert told["verdict"] == "conformant_with_waivers"
    assert told["waivers"] == ["SIM-1"]
    assert told["core"] == {"passed": 35, "required": 36, "waived": 1}


def test_what_is_written_can_be_read_and_an_old_one_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "dougong_conformance.report.certificate.of_installed"
    monkeypatch.setattr(name, lambda distribution: SHA)
    path, reason = write_certificate(report(GOOD), tmp_path)
    assert (path, reason) == (tmp_path / "conformance-certificate.json", "")
    assert path is not None
    content = read_certificate(path)
    assert list(problems(content, today=date(2026, 12, 1), spec="1.0", record_sha256=SHA)) == []
    assert write_certificate(report(made_up.failing()), tmp_path)[0] is None
    assert not path.exists()


def test_an_edited_certificate_is_no_certificate(tmp_path: Path) -> None:
    content = json.loads(EXAMPLE.read_text())
    content["extended"]["passed"] = 9
    file = tmp_path / "a.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="was edited"):
        read_certificate(file)
    file.write_text("{}")
    with pytest.raises(ValueError, match="has no format"):
        read_certificate(file)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"today": date(2027, 11, 30)}, "it expired on 2027-11-30"),
        ({"today": date(2026, 11, 29)}, "it was issued on 2026-11-30, and today is 2026-11-29"),
        ({"spec": "1.1"}, "it is for specification 1.0; this suite tests 1.1"),
        ({"record_sha256": "0" * 64}, "another build"),
    ],
)
def test_a_certificate_that_does_not_hold_says_why(changes: dict[str, Any], reason: str) -> None:
    asked: dict[str, Any] = {"today": date(2026, 12, 24), "spec": "1.0", **changes}
    (problem,) = problems(read_certificate(EXAMPLE), **asked)
    assert reason in problem


def test_a_year_is_a_year() -> None:
    assert a_year_later(date(2026, 11, 30)) == date(2027, 11, 30)
    assert a_year_later(date(2028, 2, 29)) == date(2029, 3, 1)
