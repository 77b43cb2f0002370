"""The full matrix: every mutant against every check, each in a process of its own.

Written are ``matrix.json`` and ``matrix.md``: who rejects what, mutants that one check alone
rejects, checks that reject nothing alone, and mutants that their named check lets pass.

    python -m dougong_conformance.selftest.matrix --base sim --out out/ [--mutant O01] [--jobs 2]
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dougong_conformance.check import Case, Check, all_checks, cases_of
from dougong_conformance.selftest.apart import MODE_VARIABLE
from dougong_conformance.selftest.changes import NotOnThisBase
from dougong_conformance.selftest.gate import (
    first_base,
    lenient,
    local_subject,
    run_case,
    running_in,
)
from dougong_conformance.selftest.installed import BY_NAME, mutated
from dougong_conformance.selftest.mutant import Mutant, all_mutants
from dougong_conformance.session import load_plugin

Say = Callable[[str], None]

SLOW = BY_NAME | {"communicator", "graph"}
"""Profiles whose checks start processes or engines: columns only of mutants that name them."""

_LONG = "memory"
"""A quick profile that takes half of a row's time: columns of its own mutants alone."""

_BY_NAME_TOO = frozenset({"identity.no_patches", "identity.uuid_is_stable"})
"""Checks of quick profiles that look for the plugin by its name, as it is installed."""

_QUICK = "ops.embedding"
_MODULE = "dougong_conformance.selftest.matrix"
_SILENT_S = 90.0
_NOT_HERE = "not here"


@dataclass(frozen=True, slots=True)
class Row:
    """One mutant against the checks.

    Attributes:
        id: Of the mutant.
        killer: The check that is named to reject it.
        ends: Check → outcome, the worst of its cases.
        reasons: Check → why, where it did not pass.
        seconds: How long it took.
    """

    id: str
    killer: str
    ends: dict[str, str]
    reasons: dict[str, str]
    seconds: float

    def rejected_by(self, rejecting: Sequence[str] = ("fail",)) -> tuple[str, ...]:
        """Checks that reject it, of outcomes that count."""
        return tuple(check for check, end in self.ends.items() if end in rejecting)


@dataclass(frozen=True, slots=True)
class Matrix:
    """All rows, and the good plugin's.

    Attributes:
        base: Name of the good plugin.
        good: Its own row: what it fails is no proof.
        rows: Of the mutants.
    """

    base: str
    good: Row
    rows: tuple[Row, ...]

    def kills(self, row: Row) -> tuple[str, ...]:
        """Checks that reject a mutant and not the good plugin."""
        ends = all_mutants()[row.id].ends
        bad = ("fail", "error", "crash", "timeout", "device_lost")
        own = set(self.good.rejected_by(bad))
        return tuple(check for check in row.rejected_by((*ends, *bad)) if check not in own)

    def survivors(self) -> tuple[str, ...]:
        """Mutants that could be planted and that their named check lets pass."""
        return tuple(row.id for row in self.rows if row.ends and row.killer not in self.kills(row))

    def sole_killers(self) -> dict[str, tuple[str, ...]]:
        """Check → mutants that it alone rejects."""
        found: dict[str, list[str]] = {}
        for row in self.rows:
            if len(killers := self.kills(row)) == 1:
                found.setdefault(killers[0], []).append(row.id)
        return {check: tuple(ids) for check, ids in found.items()}

    def redundant(self) -> tuple[str, ...]:
        """Checks that reject mutants, none of them alone."""
        sole = self.sole_killers()
        killing = {check for row in self.rows for check in self.kills(row)}
        return tuple(sorted(killing - set(sole)))

    def idle(self) -> tuple[str, ...]:
        """Checks that were run and reject nothing."""
        killing = {check for row in self.rows for check in self.kills(row)}
        return tuple(check for check in self.good.ends if check not in killing)

    def as_json(self) -> dict[str, Any]:
        """For ``matrix.json``."""
        return {
            "base": self.base,
            "good": self.good.ends,
            "rows": [
                {
                    "id": row.id,
                    "defect": all_mutants()[row.id].defect,
                    "killer": row.killer,
                    "rejected_by": list(self.kills(row)),
                    "reasons": {check: row.reasons.get(check, "") for check in self.kills(row)},
                    "seconds": round(row.seconds, 1),
                }
                for row in self.rows
            ],
            "survivors": list(self.survivors()),
            "sole_killers": {check: list(ids) for check, ids in self.sole_killers().items()},
            "redundant": list(self.redundant()),
            "idle": list(self.idle()),
        }

    def as_markdown(self) -> str:
        """For ``matrix.md``."""
        planted = [row for row in self.rows if row.ends]
        killed = len(planted) - len(self.survivors())
        lines = [
            f"# Mutants of {self.base}: {killed} of {len(planted)} killed by their named check",
            "",
            "| id | defect | named killer | n |",
            "|---|---|---|---|",
        ]
        for row in planted:
            killers = self.kills(row)
            name = f"`{row.killer}`" if row.killer in killers else f"**alive**: `{row.killer}`"
            defect = all_mutants()[row.id].defect.replace("|", "\\|")
            lines.append(f"| {row.id} | {defect} | {name} | {len(killers)} |")
        for title, names in (
            ("Sole killers", [f"`{one}`: {', '.join(ids)}" for one, ids in self._sole()]),
            ("Checks that kill nothing alone", [f"`{one}`" for one in self.redundant()]),
            ("Checks that rejected nothing", [f"`{one}`" for one in self.idle()]),
            ("Not planted here", [row.id for row in self.rows if not row.ends]),
        ):
            lines += ["", f"## {title}", "", *(f"- {name}" for name in names or ["none"])]
        return "\n".join(lines) + "\n"

    def _sole(self) -> Iterable[tuple[str, tuple[str, ...]]]:
        return sorted(self.sole_killers().items())


def run_matrix(
    base: str = "",
    *,
    out: Path | None = None,
    ids: Sequence[str] = (),
    jobs: int = 2,
    say: Say = lambda line: None,
) -> Matrix:
    """Every mutant, or those whose ids begin so, each in a process of its own.

    Args:
        base: Name of the good plugin; empty: the first that is here.
        out: Folder for ``matrix.json`` and ``matrix.md``; ``None``: nothing is written.
        ids: Beginnings of ids.
        jobs: Processes at once.
        say: Told one line per mutant.
    """
    name = base or first_base()
    chosen = [one for one in all_mutants().values() if not ids or one.id.startswith(tuple(ids))]

    def row(mutant: Mutant | None) -> Row:
        found = _supervised(name, mutant)
        bad = found.rejected_by((*(mutant.ends if mutant else ()), "fail", "error"))
        say(f"{found.id or 'the good plugin'}: {', '.join(bad) or 'accepted'}")
        return found

    with ThreadPoolExecutor(jobs) as pool:
        good, *rows = pool.map(row, (None, *chosen))
    matrix = Matrix(name, good, tuple(rows))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(matrix.as_json(), indent=1)
        (out / "matrix.json").write_text(text + "\n", encoding="utf-8")
        (out / "matrix.md").write_text(matrix.as_markdown(), encoding="utf-8")
    return matrix


def columns(mutant: Mutant | None) -> list[Check]:
    """Checks that a mutant is held against: its named killer, then the quick ones.

    The named one meets a fresh process, as in the gate: some mutants count how often they are
    asked.
    """
    named = mutant.killer if mutant else ""
    is_long_wanted = mutant is None or named.startswith(f"{_LONG}.")
    left_out = SLOW if is_long_wanted else SLOW | {_LONG}
    if mutant is not None and mutant.needs_process:
        # It takes a process along with every check that meets it.
        return [one for one in all_checks().values() if one.id in (named, _QUICK)]
    quick = (
        one
        for one in all_checks().values()
        if one.id == named or (one.profile not in left_out and one.id not in _BY_NAME_TOO)
    )
    return sorted(quick, key=lambda one: one.id != named)


def _supervised(base: str, mutant: Mutant | None) -> Row:
    """One row; a process that dies or falls silent costs one check, the rest go on in another."""
    start = time.monotonic()
    left = [one.id for one in columns(mutant)]
    ends: dict[str, str] = {}
    reasons: dict[str, str] = {}
    while left:
        at, is_done = "", False
        for event in _child(base, mutant.id if mutant else "", left):
            if event[0] == "begin":
                at = event[1]
            elif event[0] == "end":
                _note(ends, reasons, event[1], event[2], event[3])
            elif event[0] in ("done", _NOT_HERE):
                is_done = True
            elif event[0] in ("crash", "timeout"):
                if not at:
                    whose = mutant.id if mutant else "the good plugin"
                    raise RuntimeError(f"the process of {whose} ran no check: {event[1]}")
                check = at
                _note(ends, reasons, check, event[0], event[1])
                left = [one for one in left[left.index(check) :] if one != check]
        if is_done:
            break
    return Row(
        mutant.id if mutant else "",
        mutant.killer if mutant else "",
        ends,
        reasons,
        time.monotonic() - start,
    )


_ORDER = ("pass", "not_claimed", "not_run", "error", "timeout", "crash", "device_lost", "fail")


def _note(
    ends: dict[str, str], reasons: dict[str, str], check: str, outcome: str, reason: str
) -> None:
    """Of several cases the worst."""
    if check not in ends or _ORDER.index(outcome) > _ORDER.index(ends[check]):
        ends[check] = outcome
        if reason:
            reasons[check] = reason


def _child(base: str, mutant: str, checks: Sequence[str]) -> Iterator[list[str]]:
    """Events of one process; its death or silence is the last one."""
    command = [sys.executable, "-m", _MODULE, "--base", base, "--row", mutant, *checks]
    mode = all_mutants()[mutant].mode if mutant else "eager"
    environment = {**os.environ, MODE_VARIABLE: mode}
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=told, text=True, env=environment
        )
        for event in _events(process):
            if event[0] == "crash":
                told.seek(0)
                event = [event[0], f"{event[1]}: {told.read()[-600:]}"]
            yield event


def _events(process: subprocess.Popen[str]) -> Iterator[list[str]]:
    pipe = process.stdout
    if pipe is None:
        raise RuntimeError("a child without a pipe")
    waiting = selectors.DefaultSelector()
    waiting.register(pipe, selectors.EVENT_READ)
    try:
        while True:
            if not waiting.select(timeout=_SILENT_S):
                yield ["timeout", f"silent for {_SILENT_S:.0f} s"]
                return
            line = pipe.readline()
            if not line:
                yield ["crash", f"the process ended with {process.wait()}"]
                return
            if not line.startswith("["):
                continue
            event: list[str] = json.loads(line)
            yield event
            if event[0] in ("done", _NOT_HERE):
                return
    finally:
        process.kill()
        process.wait()
        waiting.close()
        pipe.close()


def _run_row(base: str, id: str, checks: Sequence[str]) -> None:
    """In the child: tell of every case."""

    def tell(*event: str) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()

    mutant = all_mutants()[id] if id else None
    try:
        with _subject(base, mutant) as subject:
            for check in checks:
                tell("begin", check)
                for case in _cases(all_checks()[check], mutant, subject):
                    end = run_case(subject, case)
                    tell("end", check, end.outcome.value, end.reason[:300])
    except NotOnThisBase as exc:
        tell(_NOT_HERE, str(exc))
        return
    tell("done")


def _cases(check: Check, mutant: Mutant | None, subject: Any) -> Iterator[Case]:
    """Of the dtype in which a mutant shows, for its killer; else of the first that is claimed."""
    dtypes = subject.facts.dtypes
    if mutant is not None and mutant.dtype:
        dtypes = (mutant.dtype,)
    elif mutant is None or check.id != mutant.killer:
        dtypes = dtypes if mutant is None else dtypes[:1]
    yield from cases_of(check, dtypes)


@contextmanager
def _subject(base: str, mutant: Mutant | None) -> Iterator[Any]:
    good = load_plugin(base)
    if mutant is None:
        with lenient(good):
            yield local_subject(good, has_fresh=False)
        return
    with mutated(mutant, good) as plugin, lenient(good), running_in(good, mutant.mode):
        if not plugin.import_path:
            yield local_subject(plugin)
            return
        from dougong_conformance.runner.in_process import opened

        with opened(plugin) as (subject, _):
            yield subject


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: every mutant that can be planted is killed by its named check."""
    parser = argparse.ArgumentParser(prog="python -m dougong_conformance.selftest.matrix")
    parser.add_argument("--base", default="", help="the good plugin; the first that is here")
    parser.add_argument("--out", type=Path, help="folder for matrix.json and matrix.md")
    parser.add_argument("--mutant", action="append", default=[], help="beginning of ids")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("checks", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.row is not None:
        _run_row(given.base, given.row, given.checks)
        return 0

    def say(line: str) -> None:
        sys.stderr.write(line + "\n")

    matrix = run_matrix(given.base, out=given.out, ids=given.mutant, jobs=given.jobs, say=say)
    sys.stdout.write(matrix.as_markdown())
    if own := matrix.good.rejected_by(("fail", "error", "crash", "timeout", "device_lost")):
        sys.stderr.write(f"the good plugin itself does not pass {', '.join(own)}\n")
    return 1 if matrix.survivors() else 0


if __name__ == "__main__":
    raise SystemExit(main())
