from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from dougong_conformance.outcomes import Outcome
from dougong_conformance.report.badge import to_badge_json, to_badge_svg
from dougong_conformance.report.model import Report, make_report
from dougong_conformance.results import RunRecord
from tests.unit.report import made_up


def report(record: RunRecord) -> Report:
    return make_report(record, requirements=made_up.requirements())


def with_waivers() -> RunRecord:
    rows = [
        replace(one, outcome=Outcome.WAIVED, reason="known", waiver="SIM-1")
        if one.id == "ops.linear[float16]"
        else one
        for one in made_up.passing().results
    ]
    return made_up.record(rows)


def not_certified() -> RunRecord:
    return made_up.passing(made_up.header(mode="run"))


@pytest.mark.parametrize(
    ("make", "message", "colour"),
    [
        (made_up.passing, "Core 1.0 passed, Ext 10/12, 0 waived", "2b7a2b"),
        (not_certified, "Core 1.0 passed, Ext 10/12, 0 waived (not certified)", "2b7a2b"),
        (with_waivers, "Core 1.0 passed with waivers, Ext 10/12, 1 waived", "8a6100"),
        (made_up.failing, "Core 1.0 failed, Ext 7/12, 1 waived", "b3261e"),
        (made_up.empty, "Core 1.0 incomplete, Ext 0/12, 0 waived", "5c5f66"),
        (made_up.smoke, "partial run (smoke), 7/7 cases", "5c5f66"),
    ],
)
def test_a_badge_says_no_more_than_the_run_showed(
    make: Callable[[], RunRecord], message: str, colour: str
) -> None:
    told = json.loads(to_badge_json(report(make())))
    assert (told["label"], told["message"], told["color"]) == ("conformance", message, colour)
    assert told["schemaVersion"] == 1
    assert "%" not in told["message"]


def test_the_picture_has_the_text_and_a_name_for_who_does_not_see_it() -> None:
    root = ElementTree.fromstring(to_badge_svg(report(made_up.passing())))
    name = "conformance: Core 1.0 passed, Ext 10/12, 0 waived"
    assert root.attrib["aria-label"] == name
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["conformance", "Core 1.0 passed, Ext 10/12, 0 waived"]
    assert root.find("{http://www.w3.org/2000/svg}title") is not None
