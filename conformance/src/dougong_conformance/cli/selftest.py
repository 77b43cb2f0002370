"""``dougong-conform selftest``: the two numbers by which a suite is judged."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from dougong_conformance.cli.usage import ended, usage_error


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("selftest", epilog="Exit codes: 0 all killed, all accepted; 1 not; 2 usage.")(
        selftest
    )


def selftest(
    base: Annotated[
        str, typer.Option("--plugin", metavar="NAME", help="Good plugin to make mutants of.")
    ] = "",
    only: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Mutants whose ids begin so.")
    ] = None,
    is_fast: Annotated[
        bool, typer.Option("--fast", help="Leave out mutants that need processes of their own.")
    ] = False,
    is_matrix: Annotated[
        bool, typer.Option("--matrix", help="Instead: every mutant against every check; long.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the matrix.")] = Path("out"),
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make every mutant and every witness on this machine; judge each by its named check.

    The last line of a good end is: kills N/N, accepts M/M.
    """
    from dougong.contracts import ConfigError, PluginError

    ids = tuple(only or ())
    try:
        if is_matrix:
            raise _matrix(base, ids, out)
        found = judge_all(base, ids, is_fast=is_fast, is_quiet=is_json)
    except (ConfigError, PluginError) as exc:
        raise usage_error(str(exc)) from exc
    if is_json:
        print(json.dumps(found, indent=1))
    else:
        print(found["summary"])
    rejected = [*found["survivors"], *found["rejected"]]
    raise ended(int(bool(rejected)), f"{found['summary']}; not as they must be: {rejected}")


def judge_all(base: str, ids: tuple[str, ...], *, is_fast: bool, is_quiet: bool) -> dict[str, Any]:
    """Both numbers, who survived and who was rejected."""
    from dougong_conformance.selftest.apart import ApartEnd, judge_apart
    from dougong_conformance.selftest.gate import run_fast_gate
    from dougong_conformance.selftest.mutant import all_mutants

    def say(line: str) -> None:
        if not is_quiet:
            print(line, flush=True)

    began = time.monotonic()
    report = run_fast_gate(base, ids=ids, say=say)
    left = [all_mutants()[one.id] for one in report.with_verdict("elsewhere")]
    ends: tuple[ApartEnd, ...] = () if is_fast else judge_apart(report.base, left, say)
    killed = report.killed + sum(one.verdict == "killed" for one in ends)
    total = report.total + len(ends)
    wrong = [one.id for one in report.mutants if one.verdict in ("alive", "broken", "unfit")]
    survivors = [*wrong, *(one.id for one in ends if one.verdict != "killed")]
    rejected = [one.id for one in report.witnesses if not one.is_accepted]
    not_here = [one.id for one in report.with_verdict("not here")]
    return {
        "summary": f"kills {killed}/{total}, accepts {report.accepted}/{len(report.witnesses)}",
        "base": report.base,
        "killed": killed,
        "mutants": total,
        "accepted": report.accepted,
        "witnesses": len(report.witnesses),
        "survivors": survivors,
        "rejected": rejected,
        "not_planted_here": not_here,
        "left_out": [one.id for one in left] if is_fast else [],
        "seconds": round(time.monotonic() - began, 1),
    }


def _matrix(base: str, ids: tuple[str, ...], folder: Path) -> typer.Exit:
    from dougong_conformance.selftest.matrix import run_matrix

    found = run_matrix(base, out=folder, ids=ids, say=lambda line: print(line, flush=True))
    survivors = found.survivors()
    planted = sum(bool(row.ends) for row in found.rows)
    print(f"kills {planted - len(survivors)}/{planted}; see {folder / 'matrix.md'}")
    return ended(int(bool(survivors)), f"alive: {', '.join(survivors)}")
