"""``junit.xml``: what CI services read. They hide skips, so only *not claimed* is one.

A case that was not run, or whose waiver does not hold, is an error; so is one without a result.
What fails no run (a recommendation, a provisional requirement) is a skip with its reason.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from dougong_conformance.outcomes import BAD, Outcome
from dougong_conformance.report.model import Report, profiles_told
from dougong_conformance.report.tally import is_failure, requirement_of
from dougong_conformance.results import CaseResult

JUNIT_FILE = "junit.xml"
_FAILURES = frozenset({Outcome.FAIL})
_SKIPS = frozenset({Outcome.NOT_CLAIMED, Outcome.WAIVED})
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: Report) -> str:
    """One suite per profile."""
    root = ElementTree.Element("testsuites", name=f"dougong-conformance {report.subject}")
    for profile in profiles_told(report):
        results = [one for one in report.results if one.profile == profile]
        missing = [
            one
            for one in report.record.footer.missing
            if requirement_of(one).startswith(f"{profile}.")
        ]
        if results or missing:
            _add_suite(root, report, profile, results, missing)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_suite(
    root: ElementTree.Element,
    report: Report,
    profile: str,
    results: list[CaseResult],
    missing: list[str],
) -> None:
    suite = ElementTree.SubElement(root, "testsuite", name=f"conformance.{profile}")
    for one in results:
        _add_case(suite, report, one)
    for name in missing:
        case = ElementTree.SubElement(
            suite, "testcase", name=name, classname=f"conformance.{profile}", time="0"
        )
        ElementTree.SubElement(case, "error", type="missing", message="no result")
    suite.set("tests", str(len(suite)))
    for kind in ("failure", "error", "skipped"):
        noun = {"failure": "failures", "error": "errors"}.get(kind, kind)
        suite.set(noun, str(len(suite.findall(f"testcase/{kind}"))))
    suite.set("time", f"{sum(one.ms for one in results) / 1000:.3f}")


def _add_case(suite: ElementTree.Element, report: Report, one: CaseResult) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        name=one.id,
        classname=f"conformance.{one.profile}",
        time=f"{one.ms / 1000:.3f}",
    )
    kind = _kind(one)
    if not kind:
        return
    told = ElementTree.SubElement(case, kind, message=_plain(f"{one.outcome.value}: {one.reason}"))
    if kind == "skipped":
        return
    told.set("type", one.outcome.value)
    row = report.by_id.get(one.requirement)
    says = f"The specification says: {row.text}\n" if row else ""
    told.text = _plain(f"{says}Measured: {one.reason}\nAgain: {report.repro(one)}\n{one.traceback}")


def _kind(one: CaseResult) -> str:
    if one.outcome is Outcome.PASS:
        return ""
    if one.outcome in _SKIPS or (one.outcome in BAD and not is_failure(one)):
        return "skipped"  # of the latter: provisional, or a recommendation
    return "failure" if one.outcome in _FAILURES else "error"


def _plain(text: str) -> str:
    """Without what XML cannot hold."""
    return _FORBIDDEN.sub("?", text)
