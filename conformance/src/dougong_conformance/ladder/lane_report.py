"""``python -m dougong_conformance.ladder.lane_report FOLDER``: what a lane showed, rung by rung.

A lane is a run of a vendor's tests in an environment with the vendor's own wheels. Its tests leave
evidence files, and records of runs of the suite on a double. This makes ``report.json``,
``report.md`` and ``report.html`` of them and prints the table. A lane that could not have what it
needs gets a report as well, which says so and has no rung.
"""

from __future__ import annotations

import argparse
import html
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dougong_conformance.report.ladder import (
    BESIDE,
    EVIDENCE_FOLDER,
    FROM_FILES,
    MEANINGS,
    NO_EVIDENCE,
    Evidence,
    Rung,
    climb,
    evidence_from_json,
    of_files,
)
from dougong_conformance.results import RECORD_FILE, RunRecord, read_record

FORMAT = "lane-report/1"
EXIT_FAILED = 1
EXIT_NOTHING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneReport:
    """What one lane showed.

    Attributes:
        lane: Its name.
        distribution: The wheel that it is about.
        skipped: Why the lane did not run; empty: it ran.
        tests: ``"passed"``, ``"failed"`` or ``"not run"``: of the lane's tests as a whole.
        rungs: Every rung, lowest first.
        beside: What was shown and reaches no rung.
        others: Runs of the suite on other wheels, for comparison; they count for no rung.
        problems: Evidence that does not count, and why.
    """

    lane: str
    distribution: str
    skipped: str = ""
    tests: str = "not run"
    rungs: tuple[Rung, ...] = ()
    beside: tuple[Evidence, ...] = ()
    others: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def reached(self) -> tuple[str, ...]:
        """Rungs with evidence and none against them, lowest first."""
        return tuple(one.name for one in self.rungs if one.is_reached)

    @property
    def verdict(self) -> str:
        """One line."""
        if self.skipped:
            return f"NOT RUN: {self.skipped}"
        rungs = ", ".join(self.reached) or "no rung"
        failed = [one.name for one in self.rungs if one.state == "failed"]
        against = f"; failed: {', '.join(failed)}" if failed else ""
        return f"{rungs}{against}; tests {self.tests}"

    @property
    def exit_code(self) -> int:
        """0 only where something was shown and nothing speaks against it."""
        is_against = any(one.state == "failed" for one in self.rungs)
        is_against = is_against or any(one.result != "passed" for one in self.beside)
        if self.tests == "failed" or is_against or self.problems:
            return EXIT_FAILED
        return 0 if self.tests == "passed" and (self.reached or self.beside) else EXIT_NOTHING


def read_lane(
    folder: Path, lane: str, distribution: str, *, tests: str = "not run", skipped: str = ""
) -> LaneReport:
    """Make the report of what a lane left in its folder.

    Args:
        folder: With ``evidence/*.json``, and ``record.json`` of runs of the suite in it or in any
            folder below.
        lane: Its name.
        distribution: Evidence about another wheel does not count.
        tests: As `LaneReport.tests`.
        skipped: As `LaneReport.skipped`; nothing in the folder counts then, for it may be old.
    """
    if skipped:
        rungs = tuple(of_files(name, ()) for name in MEANINGS)
        return LaneReport(lane=lane, distribution=distribution, skipped=skipped, rungs=rungs)
    evidence, problems = _evidence(folder, distribution)
    records, others, unreadable = _records(folder, distribution)
    from_files = {
        name: of_files(name, [one for one in evidence if one.rung == name]) for name in FROM_FILES
    }
    rungs = tuple(
        from_files[name] if name in from_files else _of_runs(name, records) for name in MEANINGS
    )
    return LaneReport(
        lane=lane,
        distribution=distribution,
        tests=tests,
        rungs=rungs,
        beside=tuple(one for one in evidence if one.rung == BESIDE),
        others=tuple(others),
        problems=(*problems, *unreadable),
    )


def write_lane(report: LaneReport, folder: Path) -> None:
    """Write ``report.json``, ``report.md`` and ``report.html``."""
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps(to_json(report), indent=1, ensure_ascii=False)
    (folder / "report.json").write_text(content + "\n", "utf-8")
    (folder / "report.md").write_text(to_markdown(report), "utf-8")
    (folder / "report.html").write_text(to_html(report), "utf-8")


def to_json(report: LaneReport) -> dict[str, Any]:
    """Plain data."""
    return {
        "format": FORMAT,
        "lane": report.lane,
        "distribution": report.distribution,
        "verdict": report.verdict,
        "exit_code": report.exit_code,
        "skipped": report.skipped,
        "tests": report.tests,
        "ladder": [
            {"rung": one.name, **{k: v for k, v in asdict(one).items() if k != "name"}}
            for one in report.rungs
        ],
        "beside": [asdict(one) for one in report.beside],
        "others": list(report.others),
        "problems": list(report.problems),
    }


def to_text(report: LaneReport) -> str:
    """The table as a terminal shows it."""
    lines = [f"lane {report.lane} of {report.distribution}: {report.verdict}"]
    for name, state, told, _ in _rows(report):
        lines.append(f"  {name:7} {state:12} {told}")
    lines += [f"  {one}" for one in report.others]
    lines += [f"  problem: {one}" for one in report.problems]
    return "\n".join(lines)


def to_markdown(report: LaneReport) -> str:
    """A page for a repository or a job's summary."""
    rows = [
        f"| {name} | {state} | {_cell(told)} | {_cell(command, is_code=True)} |"
        for name, state, told, command in _rows(report)
    ]
    return "\n".join(
        [
            f"# Lane {report.lane} of {report.distribution}",
            "",
            f"**{report.verdict}**",
            "",
            "| rung | state | evidence | shown again by |",
            "|---|---|---|---|",
            *rows,
            *(f"\n{_cell(one)}" for one in report.others),
            *(["", "## Does not count", ""] if report.problems else []),
            *(f"* {_cell(one)}" for one in report.problems),
            "",
            *(f"* {name}: {meaning}" for name, meaning in MEANINGS.items()),
            "",
        ]
    )


def to_html(report: LaneReport) -> str:
    """One page without scripts or links."""
    rows = "".join(
        f'<tr class="{html.escape(state.replace(" ", "-"))}">'
        + "".join(f"<td>{html.escape(text)}</td>" for text in (name, state, told))
        + f"<td><code>{html.escape(command)}</code></td></tr>"
        for name, state, told, command in _rows(report)
    )
    problems = "".join(f"<li>{html.escape(one)}</li>" for one in report.problems)
    title = html.escape(f"Lane {report.lane} of {report.distribution}")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style><h1>{title}</h1><p><b>{html.escape(report.verdict)}</b></p>"
        "<table><thead><tr><th>rung</th><th>state</th><th>evidence</th><th>shown again by</th></tr>"
        f"</thead><tbody>{rows}</tbody></table>"
        + "".join(f"<p>{html.escape(one)}</p>" for one in report.others)
        + (f"<h2>Does not count</h2><ul>{problems}</ul>" if problems else "")
        + "</html>\n"
    )


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;"
    "color-scheme:light dark}table{border-collapse:collapse}td,th{border:1px solid #8888;"
    "padding:.3rem .6rem;text-align:left;vertical-align:top}.reached td:nth-child(2){color:#0a7a2f}"
    ".failed td:nth-child(2){color:#c22;font-weight:bold}"
)


def _rows(report: LaneReport) -> Iterable[tuple[str, str, str, str]]:
    """Rung, state, evidence, commands."""
    for one in report.rungs:
        yield one.name, one.state, "; ".join(one.evidence), "; ".join(one.commands)
    for note in report.beside:
        yield BESIDE, note.result, f"{note.what} ({note.when}; {note.file})", note.command


def _evidence(folder: Path, distribution: str) -> tuple[list[Evidence], list[str]]:
    found, problems = list[Evidence](), list[str]()
    for path in sorted((folder / EVIDENCE_FOLDER).glob("*.json")):
        try:
            one = evidence_from_json(json.loads(path.read_text("utf-8")), path.name)
        except (OSError, ValueError) as error:
            problems.append(f"{path.name}: {error}")
            continue
        if one.distribution == distribution:
            found.append(one)
        else:
            problems.append(f"{path.name} is about {one.distribution}, not {distribution}")
    return found, problems


def _records(folder: Path, distribution: str) -> tuple[dict[str, RunRecord], list[str], list[str]]:
    """Runs of the suite on the wheel or on a double of it, by folder; others; what is none."""
    found, others, problems = dict[str, RunRecord](), list[str](), list[str]()
    for path in sorted(folder.rglob(RECORD_FILE)):
        place = path.parent.relative_to(folder).as_posix()
        try:
            record = read_record(path.parent)
        except (OSError, ValueError, KeyError, TypeError) as error:
            problems.append(f"{place}/{RECORD_FILE}: {error}")
            continue
        if record.header.plugin.distribution.removesuffix("-double") == distribution:
            found[place] = record
        else:
            name = record.header.plugin.distribution
            others.append(f"{place} is a run on {name}, for comparison; it counts for no rung")
    return found, others, problems


def _of_runs(name: str, records: Mapping[str, RunRecord]) -> Rung:
    """The rung of all runs together: one that failed speaks against those that did not."""
    rungs = [
        (f"{place}, on {_device(record)}", next(one for one in climb(record) if one.name == name))
        for place, record in records.items()
    ]
    states = [one.state for _, one in rungs]
    state = next((one for one in ("failed", "reached") if one in states), NO_EVIDENCE)
    return Rung(
        name=name,
        meaning=MEANINGS[name],
        state=state,
        evidence=tuple(f"{sentence} ({place})" for place, one in rungs for sentence in one.evidence)
        or ("no run of the suite",),
        commands=tuple(command for _, one in rungs for command in one.commands),
    )


def _device(record: RunRecord) -> str:
    """What it ran on: a double's name says which chip family it is, and what was changed."""
    return str(record.header.devices[0].get("name", "?")) if record.header.devices else "?"


def _cell(text: str, *, is_code: bool = False) -> str:
    line = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return f"`{line}`" if is_code and line else line


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0 only where something was shown and nothing failed."""
    parser = argparse.ArgumentParser(prog="lane_report", description=__doc__)
    parser.add_argument("folder", type=Path, help="what the lane's tests wrote to")
    parser.add_argument("--lane", required=True)
    parser.add_argument("--distribution", required=True)
    parser.add_argument("--tests", choices=("passed", "failed", "not run"), default="not run")
    parser.add_argument("--skipped", default="", help="why it did not run")
    given = parser.parse_args(arguments)
    report = read_lane(
        given.folder, given.lane, given.distribution, tests=given.tests, skipped=given.skipped
    )
    write_lane(report, given.folder)
    sys.stdout.write(f"{to_text(report)}\n")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
