"""``report.md``: the run on one page of text, for a step summary of a CI service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dougong_conformance.outcomes import BAD, Outcome
from dougong_conformance.report.certificate import certificate_note
from dougong_conformance.report.model import SYMBOLS, Report, profiles_told
from dougong_conformance.results import CaseResult, ProfileSummary

MAX_BYTES = 60_000
MARKDOWN_FILE = "report.md"
_MOST_FAILURES = 40
_MOST_LINES = 60
_REASON = 600


def to_markdown(report: Report) -> str:
    """The page, at most `MAX_BYTES` long; says so where something had to be left out."""
    parts = ["\n".join(part) for part in _parts(report)]
    kept: list[str] = []
    size = 0
    for part in filter(None, parts):
        length = len(part.encode()) + 2
        if size + length > MAX_BYTES - 400:
            rest = len(parts) - len(kept)
            kept.append(
                f"**Truncated**: {rest} more parts did not fit into {MAX_BYTES // 1000} KB; "
                "everything is in `report.html` and `report.json`."
            )
            break
        kept.append(part)
        size += length
    return "\n\n".join(kept) + "\n"


def _parts(report: Report) -> Iterator[list[str]]:
    yield list(_head(report))
    yield list(_profiles(report))
    yield from _failures(report)
    yield list(_listed("missing", "Required checks without a result", report.record.footer.missing))
    yield list(_waivers(report))
    yield list(_untrusted(report))
    yield list(_ladder(report))
    yield list(
        _listed(
            "advice",
            "Recommendations not met: they fail nothing",
            [f"`{one.id}`: {_cell(one.reason)}" for one in report.advice],
        )
    )
    yield list(_listed("warnings", "Warnings", [f"`{a}`: {_cell(b)}" for a, b in report.warnings]))
    yield list(_not_claimed(report))
    yield list(_provisional(report))
    yield list(_environment(report))


def _head(report: Report) -> Iterator[str]:
    footer = report.record.footer
    symbol = SYMBOLS[footer.core.value] if not report.is_partial else "○"
    yield f"# {symbol} {report.subject}: {report.short}"
    yield ""
    yield f"`{report.last_line}`"
    if report.device_note:
        yield ""
        yield f"> {report.device_note}"
    if note := certificate_note(report):
        yield ""
        yield f"{note[0].upper()}{note[1:]}."
    core, more = report.core, report.extended
    yield ""
    yield (
        f"Core {core.passed}/{core.offered} requirements; Extended {more.passed} passed of "
        f"{more.claimed} claimed and {more.offered} offered; {report.waived} waived; "
        f"{len(footer.missing)} without a result."
    )


def _profiles(report: Report) -> Iterator[str]:
    yield "| profile | verdict | passed | failed | waived | not run | not claimed | missing |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    for name in profiles_told(report):
        summary = report.record.footer.profiles.get(name)
        if summary is None:
            yield f"| {name} | {SYMBOLS['missing']} not in this run | | | | | | |"
            continue
        yield f"| {name} | {_verdict(summary)} | {' | '.join(map(str, _numbers(summary)))} |"


def _verdict(summary: ProfileSummary) -> str:
    word = summary.verdict.value
    return f"{SYMBOLS[word]} {word.replace('_', ' ')}"


def _numbers(summary: ProfileSummary) -> tuple[int | str, ...]:
    counts = summary.outcomes
    bad = sum(counts.get(one.value, 0) for one in (*BAD, Outcome.WAIVER_VIOLATION))
    passed = counts.get(Outcome.PASS.value, 0)
    others = (Outcome.WAIVED, Outcome.NOT_RUN, Outcome.NOT_CLAIMED)
    return (
        f"{passed}/{summary.required}",
        bad,
        *(counts.get(one.value, 0) for one in others),
        summary.missing,
    )


def _failures(report: Report) -> Iterator[list[str]]:
    if not report.failures:
        yield ["No failures."]
        return
    yield [f"## Failures ({len(report.failures)})"]
    for one in report.failures[:_MOST_FAILURES]:
        yield list(_failure(report, one))
    if len(report.failures) > _MOST_FAILURES:
        yield [f"And {len(report.failures) - _MOST_FAILURES} more; see `report.html`."]


def _failure(report: Report, one: CaseResult) -> Iterator[str]:
    row = report.by_id.get(one.requirement)
    rank = f", rank {one.rank}" if one.rank is not None else ""
    yield f"### {SYMBOLS[one.outcome.value]} {one.outcome.value}: `{one.id}`{rank}"
    yield ""
    if row is not None:
        yield f"* The specification says: {_cell(row.text)}"
    yield f"* Measured: {_cell(one.reason)}"
    for metric in one.metrics:
        limit = "" if metric.limit is None else f" (limit {metric.limit:g})"
        yield f"* {_cell(metric.name)}: {metric.value:.4g}{limit}"
    yield f"* Again: `{report.repro(one)}`"
    if row is not None and row.because:
        yield f"* Seen before: {' '.join(row.because)}"


def _listed(anchor: str, title: str, lines: Sequence[str]) -> Iterator[str]:
    if not lines:
        return
    yield f'<a id="{anchor}"></a>'
    yield ""
    yield f"## {title} ({len(lines)})"
    yield ""
    yield from (f"* {line}" for line in lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        yield f"* and {len(lines) - _MOST_LINES} more"


def _waivers(report: Report) -> Iterator[str]:
    waived = [one for one in report.results if one.waiver]
    lines = [
        *(f"problem: {_cell(text)}" for text in report.record.footer.waiver_problems),
        *(f"{one.waiver}: `{one.id}` {one.outcome.value}: {_cell(one.reason)}" for one in waived),
    ]
    yield from _listed("waivers", "Waivers", lines)


def _untrusted(report: Report) -> Iterator[str]:
    head, footer = report.record.header, report.record.footer
    lines = [
        *(f"tampered: {_cell(text)}" for text in head.tampering),
        *(f"file differs from RECORD: `{name}`" for name in head.plugin.tampered),
        *(f"patched: {_cell(text)}" for text in head.patches),
        *(f"pytest plugin of the environment: {_cell(text)}" for text in head.pytest_plugins),
        *(f"suite: {_cell(text)}" for text in footer.suite_problems),
    ]
    yield from _listed("environment", "What was found beside the plugin", lines)


def _ladder(report: Report) -> Iterator[str]:
    yield "## Verification ladder"
    yield ""
    yield "| rung | meaning | state | evidence |"
    yield "|---|---|---|---|"
    for one in report.ladder:
        told = _cell("; ".join(one.evidence)) if one.evidence else ""
        yield f"| {one.name} | {one.meaning} | {SYMBOLS[one.state]} {one.state} | {told} |"
    yield from (f"\n{_cell(text)}" for text in (*report.beside_ladder, *report.evidence_problems))


def _not_claimed(report: Report) -> Iterator[str]:
    names = sorted({one.capability for one in report.results if _is_not_claimed(one)})
    yield from _listed("not-claimed", "Not claimed, and refused properly", names)


def _is_not_claimed(one: CaseResult) -> bool:
    return one.outcome is Outcome.NOT_CLAIMED


def _provisional(report: Report) -> Iterator[str]:
    lines = [f"`{one.id}`: {_cell(one.title)}" for one in report.provisional]
    yield from _listed("provisional", "Provisional: told, never counted", lines)


def _environment(report: Report) -> Iterator[str]:
    head = report.record.header
    yield (
        f"Suite {head.suite_version}, specification {head.spec_version}, dougong "
        f"{head.core_version}, torch {head.torch}, Python {head.python}, {head.machine}; "
        f"{head.mode} of {head.started}; digest `{report.record.footer.digest[:16]}`."
    )


def _cell(text: str) -> str:
    """One line that breaks neither a table nor the page."""
    line = " ".join(text.split())
    line = line if len(line) <= _REASON else f"{line[:_REASON]}..."
    return line.replace("|", "\\|").replace("<", "&lt;")
