"""``report.json``: the published form of a run, ``conformance-report/1``, held against a schema.

The block ``results`` has the same bytes for the same plugin and suite wherever what is measured is
the same: times, logs and tracebacks stand apart in ``runs``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema

from dougong_conformance.report.ladder import Evidence
from dougong_conformance.report.model import Report
from dougong_conformance.requirements import Level, Needs, Requirement
from dougong_conformance.results import (
    CaseResult,
    Footer,
    Header,
    RunRecord,
)

FORMAT = "conformance-report/1"
REPORT_FILE = "report.json"
OF_THE_RUN = ("ms", "log", "traceback")
"""Fields of a result that differ from run to run."""


def to_document(report: Report) -> dict[str, Any]:
    """Plain data, as ``report.schema.json`` describes it."""
    core, more, footer = report.core, report.extended, report.record.footer
    rows = [one.to_json() for one in report.results]
    return {
        "format": FORMAT,
        "verdict": {
            "text": report.short,
            "last_line": report.last_line,
            "exit_code": footer.exit_code,
            "core": {"passed": core.passed, "required": core.offered, "waived": core.waived},
            "extended": {
                "passed": more.passed,
                "claimed": more.claimed,
                "offered": more.offered,
                "waived": more.waived,
            },
        },
        "header": report.record.header.to_json(),
        "results": [_without(row, OF_THE_RUN) for row in rows],
        "runs": {row["id"]: {name: row[name] for name in OF_THE_RUN} for row in rows},
        "requirements": [_requirement_to_json(one) for one in report.requirements],
        "ladder": [
            {
                "rung": one.name,
                "meaning": one.meaning,
                "state": one.state,
                "evidence": list(one.evidence),
                "commands": list(one.commands),
            }
            for one in report.ladder
        ],
        "evidence": {
            "files": [
                {name: getattr(one, name) for name in Evidence.__slots__} for one in report.evidence
            ],
            "problems": list(report.evidence_problems),
        },
        "footer": footer.to_json(),
    }


def from_document(content: Mapping[str, Any]) -> Report:
    """Inverse of `to_document`.

    Raises:
        ValueError: It does not fit the schema; says where.
    """
    check_document(content)
    runs = content["runs"]
    rows = [{**row, **runs[row["id"]]} for row in content["results"]]
    return Report(
        record=RunRecord(
            header=Header.from_json(content["header"]),
            results=tuple(CaseResult.from_json(row) for row in rows),
            footer=Footer.from_json(content["footer"]),
        ),
        requirements=tuple(map(_requirement_from_json, content["requirements"])),
        evidence=tuple(Evidence(**one) for one in content["evidence"]["files"]),
        evidence_problems=tuple(content["evidence"]["problems"]),
    )


def check_document(content: Any) -> None:
    """Hold a document against the schema, and its parts against one another.

    Raises:
        ValueError: What is wrong, with its place; the first few only.
    """
    errors = sorted(_validator().iter_errors(content), key=lambda one: one.json_path)
    if errors:
        told = "; ".join(f"{one.json_path}: {one.message[:200]}" for one in errors[:3])
        raise ValueError(f"it is no {FORMAT}: {told}")
    ids = [one["id"] for one in content["results"]]
    if len(set(ids)) < len(ids):
        raise ValueError(f"it is no {FORMAT}: a case has two results")
    if set(ids) != set(content["runs"]):
        raise ValueError(f"it is no {FORMAT}: results and runs are not about the same cases")


def write_document(report: Report, folder: Path) -> Path:
    """Write ``report.json``; returns its path.

    Raises:
        ValueError: The report does not fit its own schema.
        OSError: It cannot be written.
    """
    content = to_document(report)
    check_document(content)
    path = folder / REPORT_FILE
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def read_document(path: Path) -> Report:
    """Read a report from its file or from the folder that holds it.

    Raises:
        ValueError: It is none.
        OSError: It cannot be read.
    """
    file = path / REPORT_FILE if path.is_dir() else path
    try:
        return from_document(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file}: {error}") from error


def results_bytes(report: Report) -> bytes:
    """The block ``results`` as one line: the same bytes for the same plugin and suite."""
    text = json.dumps(to_document(report)["results"], sort_keys=True, separators=(",", ":"))
    return text.encode()


@cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema())


@cache
def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of the document."""
    text = files("dougong_conformance.report").joinpath("report.schema.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def _requirement_to_json(one: Requirement) -> dict[str, Any]:
    found = {part.name: getattr(one, part.name) for part in fields(one)}
    found["level"] = one.level.value
    found["needs"] = {part.name: getattr(one.needs, part.name) for part in fields(one.needs)}
    for name in ("kills", "because"):
        found[name] = list(found[name])
    return found


def _requirement_from_json(content: Mapping[str, Any]) -> Requirement:
    kept = dict(content)
    kept["level"] = Level(kept["level"])
    kept["needs"] = Needs(**kept["needs"])
    for name in ("kills", "because"):
        kept[name] = tuple(kept[name])
    return Requirement(**kept)


def _without(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}
