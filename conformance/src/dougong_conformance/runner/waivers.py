"""Waivers: dated promises about one exact failure of one version. Waived checks still run."""

from __future__ import annotations

import datetime
import hashlib
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dougong_conformance.outcomes import Outcome
from dougong_conformance.results import CaseResult, PluginIdentity, RunRecord

MAX_DAYS = 90
_REQUIRED = (
    *("id", "check", "plugin", "versions", "expect", "match"),
    *("reason", "issue", "created", "expires", "approved_by"),
)
_OPTIONAL = ("devices",)
_CASE_ID = re.compile(r"[a-z0-9_.]+(\[[a-z0-9_]+\])?")
_FLAKY = "flaky:"
_NOT_WAIVABLE = (Outcome.CRASH, Outcome.TIMEOUT, Outcome.DEVICE_LOST, Outcome.ERROR)


class BadWaivers(Exception):
    """The file of waivers cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """One promise.

    Attributes:
        id: The vendor's own, unique in the file.
        check: Id of one case, exactly.
        plugin: Distribution that it is about.
        versions: Of that distribution.
        devices: Names or families it is limited to; empty: any.
        match: Regular expression on the reason of the failure.
        reason: Why it fails and what will mend it.
        issue: URL.
        created: First day.
        expires: Last day.
        approved_by: A name.
        problems: What is wrong with the promise itself; one with a problem covers nothing.
    """

    id: str
    check: str
    plugin: str = ""
    versions: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    match: str = ""
    reason: str = ""
    issue: str = ""
    created: datetime.date | None = None
    expires: datetime.date | None = None
    approved_by: str = ""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Waivers:
    """A file of waivers.

    Attributes:
        waivers: In the order of the file.
        sha256: Of its bytes; empty: there is no file.
    """

    waivers: tuple[Waiver, ...] = ()
    sha256: str = ""


def read_waivers(path: Path | None) -> Waivers:
    """Read a file; what is wrong with one of its waivers is kept beside that waiver.

    Raises:
        BadWaivers: It cannot be read, or is no table of waivers.
    """
    if path is None:
        return Waivers()
    try:
        raw = path.read_bytes()
        table = tomllib.loads(raw.decode("utf-8"))
    except (OSError, ValueError) as exc:
        raise BadWaivers(f"{path} cannot be read as TOML: {exc}") from exc
    rows = table.get("waiver", [])
    if set(table) - {"waiver"} or not isinstance(rows, list):
        raise BadWaivers(f"{path}: only [[waiver]] tables may stand in it")
    return Waivers(parse_waivers(rows), hashlib.sha256(raw).hexdigest())


def parse_waivers(rows: Sequence[Mapping[str, Any]]) -> tuple[Waiver, ...]:
    """Tables as waivers, each with what is wrong with it."""
    ids = Counter(str(row.get("id")) for row in rows)
    checks = Counter(str(row.get("check")) for row in rows)
    return tuple(_parse(row, ids, checks) for row in rows)


def _parse(row: Mapping[str, Any], ids: Counter[str], checks: Counter[str]) -> Waiver:
    problems = [f"field {name!r} is missing" for name in _REQUIRED if not row.get(name)]
    problems += [f"field {name!r} is unknown" for name in row if name not in _ALL]
    if ids[str(row.get("id"))] > 1:
        problems.append("its id is used twice")
    if checks[str(row.get("check"))] > 1:
        problems.append("its check is waived twice")
    one = Waiver(
        id=str(row.get("id", "")),
        check=str(row.get("check", "")),
        plugin=str(row.get("plugin", "")),
        versions=_texts(row.get("versions")),
        devices=_texts(row.get("devices")),
        match=str(row.get("match", "")),
        reason=str(row.get("reason", "")),
        issue=str(row.get("issue", "")),
        created=_date(row.get("created")),
        expires=_date(row.get("expires")),
        approved_by=str(row.get("approved_by", "")),
    )
    problems += _form_problems(one, str(row.get("expect", "")))
    return replace(one, problems=tuple(problems))


_ALL = frozenset((*_REQUIRED, *_OPTIONAL))


def _form_problems(one: Waiver, expect: str) -> list[str]:
    found = []
    if not _CASE_ID.fullmatch(one.check):
        found.append(f"check {one.check!r} is no exact id; globs are refused")
    if expect != "fail":
        found.append(f"expect is {expect!r}; only 'fail' can be waived")
    if not one.issue.startswith(("https://", "http://")):
        found.append("issue is no URL")
    if one.created is None or one.expires is None:
        found.append("created and expires must be dates")
    elif one.expires < one.created:
        found.append("it expires before it was created")
    elif (one.expires - one.created).days > MAX_DAYS:
        found.append(f"it lasts longer than {MAX_DAYS} days")
    return found + _match_problems(one.match)


def _match_problems(match: str) -> list[str]:
    try:
        matches_anything = re.search(match, "") is not None
    except re.error as exc:
        return [f"match is no regular expression: {exc}"]
    return ["match fits any reason"] if matches_anything else []


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list) else ()


def _date(value: Any) -> datetime.date | None:
    if isinstance(value, datetime.datetime):
        return value.date()
    return value if isinstance(value, datetime.date) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What waivers are held against.

    Attributes:
        plugin: Under test.
        devices: Names and families of its devices.
        today: The day of the run.
        required: Ids of every case that counts.
        selected: Those that this run was asked for.
    """

    plugin: PluginIdentity
    devices: Collection[str]
    today: datetime.date
    required: Collection[str]
    selected: Collection[str]


def apply_waivers(
    results: Iterable[CaseResult], waivers: Sequence[Waiver], seen: Circumstances
) -> tuple[list[CaseResult], list[str]]:
    """Results with waivers applied, and what is wrong with waivers, one sentence each."""
    by_id = {one.id: one for one in results}
    problems: list[str] = []
    for waiver in waivers:
        if refused := _refusals(waiver, seen):
            problems += [f"waiver {waiver.id or '(no id)'}: {text}" for text in refused]
        elif _applies(waiver, seen) and waiver.check in by_id:
            judged, text = _apply(waiver, by_id[waiver.check])
            by_id[waiver.check] = judged
            problems += [f"waiver {waiver.id}: {text}"] if text else []
    return list(by_id.values()), problems


def _refusals(waiver: Waiver, seen: Circumstances) -> list[str]:
    """Why it covers nothing in any run of this plugin on this day."""
    found = list(waiver.problems)
    if waiver.created is not None and waiver.created > seen.today:
        found.append(f"it was created on {waiver.created}, which has not come")
    if waiver.expires is not None and waiver.expires < seen.today:
        found.append(f"it expired on {waiver.expires}")
    if waiver.plugin != seen.plugin.distribution:
        found.append(f"it is about {waiver.plugin}; this is {seen.plugin.distribution}")
    elif seen.plugin.version not in waiver.versions:
        versions = ", ".join(waiver.versions)
        found.append(f"it is about version {versions}; this is {seen.plugin.version}")
    if waiver.check not in seen.required:
        found.append(f"no case that counts has the id {waiver.check!r}")
    return found


def _applies(waiver: Waiver, seen: Circumstances) -> bool:
    """Whether it has a part in this run: the machine has its device, and the case was asked for."""
    fits = not waiver.devices or any(one in seen.devices for one in waiver.devices)
    return fits and waiver.check in seen.selected


def _apply(waiver: Waiver, result: CaseResult) -> tuple[CaseResult, str]:
    """The result under its waiver, and what is wrong; nothing where it holds."""
    named = replace(result, waiver=waiver.id)
    violated = replace(named, outcome=Outcome.WAIVER_VIOLATION)
    if result.outcome is Outcome.NOT_RUN:
        return result, ""  # nothing was promised of a machine that cannot run it
    if result.outcome is Outcome.PASS:
        text = f"{result.id} passes; take the waiver out"
        return replace(violated, reason=f"waiver {waiver.id}: it passes"), text
    if result.outcome in _NOT_WAIVABLE:
        return named, f"{result.id} ended as {result.outcome}, which cannot be waived"
    if result.outcome is not Outcome.FAIL:
        return violated, f"{result.id} ended as {result.outcome}, not as a failure"
    if result.reason.startswith(_FLAKY):
        return violated, f"{result.id} is flaky, which cannot be waived"
    if not re.search(waiver.match, result.reason):
        return violated, f"{result.id} fails for another reason: {result.reason[:200]}"
    return replace(named, outcome=Outcome.WAIVED), ""


def suggest(record: RunRecord, today: datetime.date) -> str:
    """TOML of a waiver for every failure of a run; the vendor fills what stays empty."""
    plugin = record.header.plugin
    failed = [one for one in record.results if one.outcome is Outcome.FAIL]
    blocks = [
        "\n".join(
            (
                "[[waiver]]",
                f'id = "{plugin.name.upper()}-{today.year}-{number:03d}"',
                f'check = "{one.id}"',
                f'plugin = "{plugin.distribution}"',
                f'versions = ["{plugin.version}"]',
                'expect = "fail"',
                f"match = {_literal(_pattern(one.reason))}",
                'reason = ""  # why it fails, and what will mend it',
                'issue = ""  # https://',
                f"created = {today.isoformat()}",
                f"expires = {(today + datetime.timedelta(days=MAX_DAYS)).isoformat()}",
                'approved_by = ""',
            )
        )
        for number, one in enumerate(failed, start=1)
        if not one.is_provisional
    ]
    return "\n\n".join(blocks) + ("\n" if blocks else "")


def _pattern(reason: str) -> str:
    """The first words of a reason with numbers left open: those differ from run to run."""
    words = reason.splitlines()[0][:80] if reason else ""
    return re.sub(r"\d+", r"\\d+", re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", words))


def _literal(text: str) -> str:
    """As TOML: a literal string where that can be, else a basic one."""
    if "'" not in text:
        return f"'{text}'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
