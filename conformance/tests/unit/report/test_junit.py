from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from dougong_conformance.report.junit import to_junit
from dougong_conformance.report.model import make_report
from dougong_conformance.results import RunRecord
from tests.unit.report import made_up


def parsed(record: RunRecord) -> ElementTree.Element:
    text = to_junit(make_report(record, requirements=made_up.requirements()))
    return ElementTree.fromstring(text)


def kinds(root: ElementTree.Element) -> dict[str, str]:
    return {
        case.attrib["name"]: case[0].tag if len(case) else "passed"
        for case in root.iter("testcase")
    }


def test_what_ci_services_would_hide_is_an_error() -> None:
    found = kinds(parsed(made_up.failing()))
    assert found["communicator.subgroup"] == "error"  # not run
    assert found["quantization.int4[float16]"] == "error"  # waiver violation
    assert found["engine.preemption"] == "error"  # no result
    assert found["attention.decode[bfloat16]"] == "error"  # crash
    assert found["ops.linear[bfloat16]"] == "failure"
    assert found["ops.linear[float32]"] == "passed"


def test_what_fails_no_run_is_a_skip_with_its_reason() -> None:
    root = parsed(made_up.failing())
    found = kinds(root)
    assert found["attention.sinks[float32]"] == "skipped"  # not claimed
    assert found["attention.softcap[float32]"] == "skipped"  # waived
    assert found["lora.unload"] == "skipped"  # provisional
    assert found["performance.no_host_copies"] == "skipped"  # recommendation
    (told,) = [x for x in root.iter("testcase") if x.attrib["name"] == "lora.unload"]
    assert told[0].attrib["message"] == "fail: the adapter is still active"


def test_numbers_of_a_suite_fit_its_cases() -> None:
    root = parsed(made_up.failing())
    for suite in root.iter("testsuite"):
        assert int(suite.attrib["tests"]) == len(suite.findall("testcase"))
        for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(suite.attrib[name]) == len(suite.findall(f"testcase/{tag}"))


def test_a_failure_tells_the_specification_and_how_to_repeat_it() -> None:
    root = parsed(made_up.failing())
    (case,) = [x for x in root.iter("testcase") if x.attrib["name"] == "ops.linear[bfloat16]"]
    text = case[0].text or ""
    assert "The specification says: linear multiplies" in text
    assert "Again: dougong-conform repro out 'ops.linear[bfloat16]'" in text


def test_bytes_that_xml_cannot_hold_are_replaced() -> None:
    record = made_up.failing()
    rows = tuple(
        replace(one, reason="bell \x07 and \ud800", traceback="\x00") for one in record.results
    )
    assert "bell ? and ?" in ElementTree.tostring(parsed(replace(record, results=rows)), "unicode")
