"""Every written form of a run, in one folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from dougong_conformance.report.badge import BADGE_JSON, BADGE_SVG, to_badge_json, to_badge_svg
from dougong_conformance.report.certificate import write_certificate
from dougong_conformance.report.document import REPORT_FILE, write_document
from dougong_conformance.report.html import HTML_FILE, to_html
from dougong_conformance.report.junit import JUNIT_FILE, to_junit
from dougong_conformance.report.markdown import MARKDOWN_FILE, to_markdown
from dougong_conformance.report.model import Report, make_report
from dougong_conformance.requirements import Requirement
from dougong_conformance.results import RunRecord

_FORMS: Mapping[str, tuple[tuple[str, Callable[[Report], str]], ...]] = {
    "md": ((MARKDOWN_FILE, to_markdown),),
    "html": ((HTML_FILE, to_html),),
    "junit": ((JUNIT_FILE, to_junit),),
    "badge": ((BADGE_JSON, to_badge_json), (BADGE_SVG, to_badge_svg)),
}

FORMATS = ("json", *_FORMS)
"""What a report can be written as."""


def write_all(
    record: RunRecord, folder: Path, requirements: Mapping[str, Requirement] | None = None
) -> Report:
    """Write every form of a run's report into a folder, which is made, and its certificate.

    A run that did not earn a certificate gets none, and one of an earlier run does not stay.

    Args:
        record: The run.
        folder: Where to; ``evidence/*.json`` in it is read for the ladder.
        requirements: As the run was judged by; ``None``: the suite's own.

    Raises:
        ValueError: The record does not fit the report's schema.
        OSError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    report = make_report(record, folder, requirements)
    write_forms(report, folder, FORMATS)
    write_certificate(report, folder)
    return report


def write_forms(report: Report, folder: Path, formats: Collection[str]) -> list[Path]:
    """Write some forms; returns their paths.

    Raises:
        KeyError: A format is unknown.
        ValueError: As `write_all`.
        OSError: As `write_all`.
    """
    written = []
    for name in formats:
        if name == "json":
            written.append(write_document(report, folder))
            continue
        for file, make in _FORMS[name]:
            path = folder / file
            path.write_text(make(report), encoding="utf-8")
            written.append(path)
    return written


__all__ = ["FORMATS", "REPORT_FILE", "write_all", "write_forms"]
