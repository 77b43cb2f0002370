"""A record survives the trip to a file and back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dougong_conformance.judging import Metric
from dougong_conformance.outcomes import Outcome
from dougong_conformance.results import (
    CaseResult,
    CoreVerdict,
    Footer,
    Header,
    PluginIdentity,
    ProfileSummary,
    ProfileVerdict,
    RunRecord,
    Selection,
    outcomes_digest,
    read_record,
    results_digest,
    write_record,
)

RESULT = CaseResult(
    id="ops.norm[float32]",
    requirement="ops.norm",
    profile="ops",
    dtype="float32",
    outcome=Outcome.WAIVED,
    measured=Outcome.FAIL,
    reason="too far",
    metrics=(Metric("max", float("nan"), 3.0), Metric("n", 1.0)),
    attempts=(Outcome.FAIL,),
    waiver="W-1",
    ms=3.0,
)
RECORD = RunRecord(
    header=Header(
        mode="run",
        suite_version="1",
        suite_sha256="0",
        spec_version="1.0",
        plugin=PluginIdentity(name="a", distribution="b", version="1", tampered=("x",)),
        claims={"limits": {"a": 1}, "bandwidth": float("inf")},
        selection=Selection(profiles=("ops",)),
        devices=({"name": "d"},),
    ),
    results=(RESULT,),
    footer=Footer(
        core=CoreVerdict.CONFORMANT,
        profiles={"ops": ProfileSummary(verdict=ProfileVerdict.PASSED, outcomes={"pass": 1})},
        missing=("x",),
    ),
)


def test_a_record_survives_the_trip(tmp_path: Path) -> None:
    write_record(RECORD, tmp_path)
    assert json.dumps(read_record(tmp_path).to_json()) == json.dumps(RECORD.to_json())
    assert read_record(tmp_path / "record.json").results[0].waiver == "W-1"


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"format": "conformance-record/1"}'])
def test_what_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(ValueError, match=r"record|format|Expecting"):
        read_record(tmp_path)


def test_digests_see_outcomes_and_not_times() -> None:
    slower = replace(RESULT, ms=900.0, log="other.log")
    other = replace(RESULT, reason="another")
    failed = replace(RESULT, outcome=Outcome.FAIL)
    assert results_digest([RESULT]) == results_digest([slower])
    assert results_digest([RESULT]) != results_digest([other])
    assert outcomes_digest([RESULT]) == outcomes_digest([other])
    assert outcomes_digest([RESULT]) != outcomes_digest([failed])
