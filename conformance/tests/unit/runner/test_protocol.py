"""What a judge told, as it is read back: whole, cut short, or spoilt."""

from __future__ import annotations

import json

from dougong_conformance.judging import Metric
from dougong_conformance.outcomes import Outcome
from dougong_conformance.results import Selection
from dougong_conformance.runner.cases import CaseEnd
from dougong_conformance.runner.limits import Limits
from dougong_conformance.runner.protocol import Setup, end_from_json, end_to_json, read_events

END = CaseEnd(
    id="ops.norm[float32]",
    outcome=Outcome.FAIL,
    reason="too far",
    metrics=(Metric("max", float("inf"), 3.0), Metric("rms", 0.5)),
    warnings=("claim it",),
    ms=1.5,
    traceback="Traceback",
    rank=1,
    raised="KernelFault",
    attempts=(Outcome.FAIL, Outcome.PASS),
    log="executor-1.log",
)
LINES = [
    json.dumps({"event": "hello", "versions": {"torch": "2"}}),
    json.dumps(
        {"event": "plan", "per_dtype": ["ops.norm"], "checks": ["ops.norm"], "selected": []}
    ),
    json.dumps({"event": "start", "id": END.id}),
    json.dumps({"event": "heartbeat"}),
    json.dumps({"event": "end", "end": end_to_json(END)}),
    json.dumps({"event": "footer"}),
]


def test_an_end_survives_the_trip() -> None:
    assert end_from_json(json.loads(json.dumps(end_to_json(END), allow_nan=False))) == END


def test_a_setup_survives_the_trip() -> None:
    setup = Setup(
        mode="run",
        selection=Selection(profiles=("ops",), expression="a or b", cases=("x",)),
        limits=Limits(case_min_s=1.0),
        repeats=3,
    )
    assert Setup.from_json(json.loads(json.dumps(setup.to_json()))) == setup


def test_a_whole_run_is_read_back() -> None:
    told = read_events(LINES)
    assert told.ends == [END]
    assert told.has_footer
    assert told.started == ""
    assert told.broken_lines == 0
    assert told.per_dtype == {"ops.norm"}


def test_a_run_that_was_cut_has_no_footer_and_says_what_was_running() -> None:
    told = read_events([*LINES[:3], LINES[4][:40]])
    assert not told.has_footer
    assert told.started == END.id
    assert told.ends == []
    assert told.broken_lines == 1


def test_lines_that_are_no_events_are_counted_and_change_nothing() -> None:
    spoilt = ['{"event": "end", "end": {"id": "x", "outcome": "great"}}', "[]", '{"event": "win"}']
    told = read_events([*LINES[:5], *spoilt, LINES[5]])
    assert told.ends == [END]
    assert told.broken_lines == 3
    assert told.has_footer
