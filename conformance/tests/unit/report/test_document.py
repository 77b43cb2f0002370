from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dougong_conformance.report.document import (
    check_document,
    from_document,
    read_document,
    results_bytes,
    schema,
    to_document,
    write_document,
)
from dougong_conformance.report.model import Report, make_report
from dougong_conformance.results import RunRecord, results_digest
from tests.unit.report import made_up

RUNS = (
    made_up.passing, made_up.failing, made_up.empty, made_up.smoke, made_up.on_a_chip,
)  # fmt: skip


def report(record: RunRecord) -> Report:
    return make_report(record, requirements=made_up.requirements())


@pytest.mark.parametrize("make", RUNS)
def test_every_kind_of_run_fits_the_schema_and_comes_back_whole(
    make: Callable[[], RunRecord], tmp_path: Path
) -> None:
    made = report(make())
    path = write_document(made, tmp_path)
    content = json.loads(path.read_text("utf-8"))
    assert content["format"] == "conformance-report/1"
    back = read_document(tmp_path)
    assert back.record.header == made.record.header
    assert back.record.footer == made.record.footer
    assert back.results == made.results
    assert to_document(back) == to_document(made)


def _set(*path: str | int, to: Any) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = to

    return change


def _drop(*path: str | int) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        del content[path[-1]]

    return change


def _result(outcome: str, **more: Any) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        content["results"][0] |= {"outcome": outcome, "reason": "a reason", **more}

    return change


def _twice(content: Any) -> None:
    content["results"].append(content["results"][0])


CORRUPTIONS: dict[str, Callable[[Any], None]] = {
    "another format": _set("format", to="conformance-report/2"),
    "no footer": _drop("footer"),
    "no header": _drop("header"),
    "a development version of the suite": _set("header", "suite_version", to="1.0.dev3"),
    "an unknown outcome": _result("xfail"),
    "a failure without a reason": _result("fail", reason=""),
    "not claimed without a capability": _result("not_claimed", capability=""),
    "waived without a waiver": _result("waived", waiver=""),
    "a waiver violation without a waiver": _result("waiver_violation", waiver=""),
    "an unknown key in a result": _result("pass", tolerance=0.5),
    "an unknown key at the top": _set("comment", to="trust me"),
    "a digest that is none": _set("footer", "digest", to="abc"),
    "an exit code that there is not": _set("footer", "exit_code", to=8),
    "a count below zero": _set("footer", "counts", "pass", to=-1),
    "a metric without its limit": _drop("results", 0, "metrics", 0, "limit"),
    "a metric that is a text": _set("results", 0, "metrics", 0, "value", to="small"),
    "an unknown level": _result("pass", level="maybe"),
    "an unknown verdict of a profile": _set("footer", "profiles", "ops", "verdict", to="green"),
    "a rung too few": _drop("ladder", 0),
    "evidence for a rung that only a run gives": _set("evidence", "files", to=[{"rung": "L6"}]),
    "an id that is none": _result("pass", id="Ops.RMS norm"),
    "a case with two results": _twice,
    "a result without its times": _drop("runs", "ops.linear[float32]"),
}


@pytest.fixture(scope="module")
def valid() -> dict[str, Any]:
    rows = [one for one in made_up.passing().results if one.profile in {"ops", "engine"}]
    content = to_document(report(made_up.record(rows)))
    content["results"].sort(key=lambda row: not row["metrics"])
    check_document(content)
    return content


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corrupt_report_is_rejected(name: str, valid: dict[str, Any]) -> None:
    content = copy.deepcopy(valid)
    CORRUPTIONS[name](content)
    with pytest.raises(ValueError, match=r"it is no conformance-report/1: "):
        check_document(content)


def test_the_same_run_at_another_time_has_the_same_bytes_of_results() -> None:
    record = made_up.failing()
    later = [
        replace(one, ms=one.ms * 1.7, log="logs/executor-9.txt", traceback="at 0x7f")
        for one in reversed(record.results)
    ]
    other = replace(record, results=tuple(later))
    assert results_bytes(report(record)) == results_bytes(report(other))
    assert results_digest(record.results) == results_digest(other.results)


def test_one_other_outcome_gives_other_bytes() -> None:
    first, second = report(made_up.passing()), report(made_up.failing())
    assert results_bytes(first) != results_bytes(second)


def test_the_schema_is_of_the_year_2020_and_closed() -> None:
    assert schema()["$schema"].endswith("2020-12/schema")
    assert schema()["additionalProperties"] is False
    assert schema()["$defs"]["result"]["additionalProperties"] is False


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "conformance-record/1"}'])
def test_a_file_that_is_no_report_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(ValueError, match=r"report\.json: "):
        read_document(tmp_path)
    with pytest.raises(OSError, match="nowhere"):
        read_document(tmp_path / "nowhere.json")


def test_what_is_no_report_is_told_by_its_place() -> None:
    with pytest.raises(ValueError, match=r"\$: 'verdict' is a required"):
        from_document({"format": "conformance-report/1"})
