"""Runs and waivers with the verdict that each must get: for the engine, and for broken copies."""

from __future__ import annotations

import datetime
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dougong_conformance.outcomes import Outcome
from dougong_conformance.requirements import Level, Requirement
from dougong_conformance.results import Footer, PluginIdentity
from dougong_conformance.runner import verdict, waivers
from dougong_conformance.runner.cases import CaseEnd
from dougong_conformance.runner.verdict import Evidence

TODAY = datetime.date(2026, 9, 1)
PLUGIN = PluginIdentity(name="mychip", distribution="mychip-core", version="1.4.0")
P, F = Outcome.PASS, Outcome.FAIL


def row(id: str, **fields: Any) -> Requirement:
    return Requirement(id=id, title=id, text="As it says.", **fields)


ROWS = {
    one.id: one
    for one in (
        row("discovery.finds"),
        row("memory.should", level=Level.SHOULD),
        row("ops.norm"),
        row("attention.window", capability="attention.window"),
        row("engine.later", is_provisional=True),
        row("lora.adapter", is_provisional=True),
    )
}
GOOD: Mapping[str, Outcome] = {
    "discovery.finds": P,
    "memory.should": P,
    "ops.norm[float32]": P,
    "ops.norm[bfloat16]": P,
    "attention.window": Outcome.NOT_CLAIMED,
}
WAIVER: dict[str, Any] = {
    "id": "W-1",
    "check": "ops.norm[bfloat16]",
    "plugin": "mychip-core",
    "versions": ["1.4.0", "1.4.1"],
    "expect": "fail",
    "match": "max error",
    "reason": "the unit saturates",
    "issue": "https://example.org/1",
    "created": datetime.date(2026, 8, 1),
    "expires": datetime.date(2026, 10, 30),
    "approved_by": "A. Name",
}


def evidence(
    results: Mapping[str, Outcome] = GOOD, *, reason: str = "the max error is 9", **fields: Any
) -> Evidence:
    given: dict[str, Any] = {
        "requirements": ROWS,
        "per_dtype": frozenset({"ops.norm"}),
        "checks": frozenset(ROWS),
        "dtypes": ("float32", "bfloat16"),
        "ends": [
            CaseEnd(id=id, outcome=outcome, reason="" if outcome is P else reason)
            for id, outcome in results.items()
        ],
        "has_footer": True,
        "plugin": PLUGIN,
        "devices": ("mychip-b1", "b1"),
        "today": TODAY,
    }
    return Evidence(**{**given, **fields})


def changed(**results: Outcome | None) -> dict[str, Outcome]:
    """The good results, with some other; names spell ``.`` as ``__`` and brackets as ``___``."""
    found = dict(GOOD)
    for name, outcome in results.items():
        id, _, dtype = name.replace("__", ".").partition("..")
        id = f"{id}[{dtype}]" if dtype else id
        if outcome is None:
            found.pop(id, None)
        else:
            found[id] = outcome
    return found


@dataclass(frozen=True)
class Row:
    """One case of the table.

    Attributes:
        name: For the test's id.
        evidence: What was seen.
        code: Exit code that must come out.
        holds: Further conditions on the outcomes by id and the footer.
        waivers: Tables of a file of waivers.
    """

    name: str
    evidence: Evidence
    code: int
    holds: Callable[[dict[str, Outcome], Footer], bool] = lambda outcomes, footer: True
    waivers: list[dict[str, Any]] = field(default_factory=list)


def profile(footer: Footer, name: str) -> str:
    return footer.profiles[name].verdict.value


def _plain() -> list[Row]:
    bad = [Outcome.FAIL, Outcome.CRASH, Outcome.TIMEOUT, Outcome.DEVICE_LOST, Outcome.ERROR]
    required = ("discovery.finds", "memory.should", "ops.norm[float32]", "ops.norm[bfloat16]")
    return [
        Row(
            "everything passes",
            evidence(),
            0,
            lambda o, f: (
                f.core == "conformant"
                and profile(f, "ops") == "passed"
                and profile(f, "attention") == "not_claimed"
                and profile(f, "engine") == "provisional"
                and profile(f, "graph") == "provisional"
                and f.required == (*required, "attention.window")
                and not f.missing
                and f.exit_reason == ""
                and f.profiles["ops"].required == 2
                and f.profiles["ops"].outcomes == {"pass": 2}
            ),
        ),
        *(
            Row(
                f"a core case ends as {one}",
                evidence(changed(ops__norm____float32=one)),
                1,
                lambda o, f: (
                    f.core == "not_conformant"
                    and profile(f, "ops") == "failed"
                    and profile(f, "discovery") == "passed"
                    and "ops.norm[float32]" in f.exit_reason
                ),
            )
            for one in bad
        ),
        Row(
            "a claimed extra fails",
            evidence(changed(attention__window=F)),
            1,
            lambda o, f: f.core == "conformant" and profile(f, "attention") == "failed",
        ),
        Row(
            "a recommendation is not met",
            evidence(changed(memory__should=F)),
            0,
            lambda o, f: profile(f, "memory") == "passed" and f.core == "conformant",
        ),
        *(
            Row(f"a recommendation ends as {one}", evidence(changed(memory__should=one)), 1)
            for one in (Outcome.CRASH, Outcome.TIMEOUT, Outcome.DEVICE_LOST)
        ),
        Row(
            "a recommendation cannot be shown here",
            evidence(changed(memory__should=Outcome.NOT_RUN)),
            0,
        ),
        Row(
            "a required case has no result",
            evidence(changed(ops__norm____bfloat16=None)),
            3,
            lambda o, f: (
                f.missing == ("ops.norm[bfloat16]",)
                and f.core == "incomplete"
                and profile(f, "ops") == "incomplete"
                and f.profiles["ops"].missing == 1
            ),
        ),
        Row(
            "a recommendation has no result",
            evidence(changed(memory__should=None)),
            3,
            lambda o, f: profile(f, "memory") == "incomplete" and f.core == "conformant",
        ),
        Row(
            "a requirement has no check",
            evidence(changed(discovery__finds=None), checks=frozenset(ROWS) - {"discovery.finds"}),
            3,
            lambda o, f: f.missing == ("discovery.finds",),
        ),
        Row(
            "no dtype is claimed",
            evidence(changed(ops__norm____bfloat16=None, ops__norm____float32=None), dtypes=()),
            3,
            lambda o, f: f.missing == ("ops.norm",) and f.core == "incomplete",
        ),
        Row(
            "this machine cannot run a case",
            evidence(changed(discovery__finds=Outcome.NOT_RUN)),
            3,
            lambda o, f: (
                profile(f, "discovery") == "incomplete" and f.core == "incomplete" and not f.missing
            ),
        ),
        Row(
            "the footer is missing",
            evidence(has_footer=False),
            3,
            lambda o, f: f.core == "incomplete",
        ),
        Row(
            "a failure outweighs what is missing",
            evidence(changed(discovery__finds=None, ops__norm____float32=F)),
            1,
        ),
    ]


def _rules() -> list[Row]:
    return [
        Row(
            "a core case says that it is not claimed",
            evidence(changed(discovery__finds=Outcome.NOT_CLAIMED)),
            1,
            lambda o, f: o["discovery.finds"] == "fail" and f.core == "not_conformant",
        ),
        Row(
            "a claimed extra says that it is not claimed",
            evidence(features=frozenset({"attention.window"})),
            1,
            lambda o, f: o["attention.window"] == "fail",
        ),
        Row(
            "an extra of two claims says that it is not claimed, and both are",
            evidence(
                requirements={"graph.waits": row("graph.waits", capability="a and b")},
                ends=[CaseEnd(id="graph.waits", outcome=Outcome.NOT_CLAIMED, reason="no")],
                features=frozenset({"a", "b"}),
            ),
            1,
            lambda o, f: o["graph.waits"] == "fail",
        ),
        Row(
            "an extra of two claims says that it is not claimed, and one is not",
            evidence(
                {"discovery.finds": P, "graph.waits": Outcome.NOT_CLAIMED},
                requirements={
                    "discovery.finds": ROWS["discovery.finds"],
                    "graph.waits": row("graph.waits", capability="a and b"),
                },
                features=frozenset({"a"}),
            ),
            0,
            lambda o, f: o["graph.waits"] == "not_claimed",
        ),
        Row(
            "a check says that it is waived",
            evidence(changed(discovery__finds=Outcome.WAIVED)),
            1,
            lambda o, f: o["discovery.finds"] == "error",
        ),
        Row(
            "a check says that a waiver is violated",
            evidence(changed(discovery__finds=Outcome.WAIVER_VIOLATION)),
            1,
            lambda o, f: o["discovery.finds"] == "error",
        ),
        Row(
            "a provisional case fails",
            evidence(changed(engine__later=F)),
            0,
            lambda o, f: (
                o["engine.later"] == "fail"
                and profile(f, "engine") == "provisional"
                and f.profiles["engine"].provisional == 1
            ),
        ),
        Row(
            "a provisional case crashes",
            evidence(changed(engine__later=Outcome.CRASH)),
            0,
        ),
        Row(
            "a provisional case passes",
            evidence(changed(engine__later=P)),
            0,
            lambda o, f: profile(f, "engine") == "provisional",
        ),
        Row(
            "a provisional case cannot be run",
            evidence(changed(engine__later=Outcome.NOT_RUN)),
            0,
        ),
        Row(
            "a case is reported twice",
            evidence(
                ends=[*evidence().ends, CaseEnd(id="discovery.finds", outcome=F, reason="late")]
            ),
            4,
            lambda o, f: (
                f.duplicates == ("discovery.finds",)
                and o["discovery.finds"] == "fail"
                and f.core == "not_conformant"
            ),
        ),
        Row(
            "a case is reported twice and passes twice",
            evidence(ends=[*evidence().ends, CaseEnd(id="discovery.finds", outcome=P)]),
            4,
            lambda o, f: f.core == "incomplete",
        ),
        Row(
            "a case is reported that nobody knows",
            evidence(changed(ops__secret=P)),
            4,
            lambda o, f: f.unknown == ("ops.secret",) and "ops.secret" not in o,
        ),
        Row(
            "a case is reported for a dtype that is not claimed",
            evidence(changed(ops__norm____float64=P)),
            4,
        ),
        Row(
            "a case of another dtype stands in for a required one",
            evidence(changed(ops__norm____bfloat16=None, ops__norm=P)),
            4,
            lambda o, f: f.missing == ("ops.norm[bfloat16]",),
        ),
        Row(
            "a canary misbehaved",
            evidence(suite_problems=("a canary passed",)),
            4,
            lambda o, f: f.core == "incomplete" and "a canary passed" in f.exit_reason,
        ),
        Row(
            "the suite's own fault outweighs all",
            evidence(
                changed(ops__norm____float32=F),
                suite_problems=("the judge died",),
                is_certifying=True,
                tampering=("edited",),
                no_plugin="gone",
            ),
            4,
        ),
        Row(
            "an edited wheel is certified",
            evidence(is_certifying=True, tampering=("edited",)),
            7,
            lambda o, f: f.core == "incomplete",
        ),
        Row("an edited wheel is run", evidence(tampering=("edited",)), 0),
        Row(
            "tampering outweighs that nothing ran",
            evidence({}, is_certifying=True, tampering=("edited",), no_plugin="gone"),
            7,
        ),
        Row(
            "nothing ran",
            evidence({}, no_plugin="no device"),
            5,
            lambda o, f: "no device" in f.exit_reason and f.core == "incomplete",
        ),
        Row("no case was reported", evidence({}), 5),
        Row(
            "no case really ran",
            evidence(
                {
                    **dict.fromkeys(GOOD, Outcome.NOT_RUN),
                    "attention.window": Outcome.NOT_CLAIMED,
                }
            ),
            5,
        ),
        Row(
            "the plugin was lost and some results are there",
            evidence(no_plugin="it vanished"),
            5,
        ),
        Row(
            "only some were asked for",
            evidence({"discovery.finds": P}, selected=frozenset({"discovery.finds"})),
            0,
            lambda o, f: (
                profile(f, "discovery") == "passed"
                and profile(f, "ops") == "incomplete"
                and f.profiles["ops"].not_selected == 2
                and f.profiles["ops"].missing == 0
                and f.core == "incomplete"
            ),
        ),
        Row(
            "one that was asked for has no result",
            evidence(
                {"discovery.finds": P},
                selected=frozenset({"discovery.finds", "ops.norm[float32]"}),
            ),
            3,
            lambda o, f: f.missing == ("ops.norm[float32]",),
        ),
        Row(
            "nothing fits what was asked for",
            evidence({}, selected=frozenset()),
            5,
            lambda o, f: "no case fits" in f.exit_reason,
        ),
        Row(
            "a failure gives no reason",
            evidence(changed(ops__norm____float32=F), reason=""),
            1,
        ),
    ]


def waiver(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in {**WAIVER, **fields}.items() if value is not None}


def _waived(
    name: str,
    code: int,
    *tables: dict[str, Any],
    outcome: Outcome | None = F,
    becomes: str = "",
    problem: str = "",
    core: str = "",
    **fields: Any,
) -> Row:
    def holds(outcomes: dict[str, Outcome], footer: Footer) -> bool:
        told = " ".join(footer.waiver_problems)
        return (
            (not becomes or outcomes.get("ops.norm[bfloat16]") == becomes)
            and (not core or footer.core == core)
            and (problem in told if problem else not told)
        )

    seen = evidence(changed(ops__norm____bfloat16=outcome), **fields)
    return Row(f"waiver: {name}", seen, code, holds, list(tables) or [waiver()])


def _waivers() -> list[Row]:
    day = datetime.date
    flaky = "flaky: pass, fail, pass in 3 runs; the max error is 9"
    return [
        _waived("holds", 0, becomes="waived", core="conformant_with_waivers"),
        _waived(
            "passes after all",
            6,
            outcome=P,
            becomes="waiver_violation",
            problem="take the waiver out",
            core="not_conformant",
        ),
        _waived(
            "another reason", 6, reason="wrong shape", becomes="waiver_violation", problem="another"
        ),
        *(
            _waived(f"ends as {one}", 6, outcome=one, becomes=one.value, problem="cannot be waived")
            for one in (Outcome.CRASH, Outcome.TIMEOUT, Outcome.DEVICE_LOST, Outcome.ERROR)
        ),
        _waived("is flaky", 6, reason=flaky, becomes="waiver_violation", problem="flaky"),
        _waived("cannot be run here", 3, outcome=Outcome.NOT_RUN, becomes="not_run"),
        _waived("has no result", 3, outcome=None),
        _waived(
            "of an extra that is not claimed",
            6,
            waiver(check="attention.window"),
            outcome=P,
            problem="not as a failure",
        ),
        _waived("last day", 0, waiver(expires=TODAY), becomes="waived"),
        _waived(
            "expired", 6, waiver(expires=day(2026, 8, 31)), becomes="fail", problem="expired"
        ),
        _waived("first day", 0, waiver(created=TODAY), becomes="waived"),
        _waived(
            "created tomorrow", 6, waiver(created=day(2026, 9, 2)), becomes="fail", problem="come"
        ),
        _waived("lasts 90 days", 0, waiver(expires=day(2026, 10, 30)), becomes="waived"),
        _waived(
            "lasts 91 days", 6, waiver(expires=day(2026, 10, 31)), becomes="fail", problem="longer"
        ),
        _waived(
            "ends before it begins",
            6,
            waiver(created=day(2026, 9, 1), expires=day(2026, 8, 30)),
            problem="before it was created",
        ),
        _waived("dates are text", 6, waiver(expires="2026-10-30"), problem="must be dates"),
        _waived("glob", 6, waiver(check="ops.*"), becomes="fail", problem="globs"),
        _waived("glob of a dtype", 6, waiver(check="ops.norm[*]"), becomes="fail", problem="globs"),
        _waived(
            "no dtype", 6, waiver(check="ops.norm"), becomes="fail", problem="no case"
        ),
        _waived("unknown case", 6, waiver(check="ops.gone"), becomes="fail", problem="no case"),
        _waived("of a provisional case", 6, waiver(check="engine.later"), problem="no case"),
        _waived("expects a crash", 6, waiver(expect="crash"), becomes="fail", problem="expect"),
        _waived("second version", 0, waiver(versions=["1.3.0", "1.4.0"]), becomes="waived"),
        _waived(
            "another version", 6, waiver(versions=["1.3.0"]), becomes="fail", problem="version"
        ),
        _waived("another plugin", 6, waiver(plugin="theirs"), becomes="fail", problem="is about"),
        _waived("its device", 0, waiver(devices=["b1"]), becomes="waived"),
        _waived("another device", 1, waiver(devices=["b2"]), becomes="fail"),
        _waived("matches anything", 6, waiver(match=".*"), becomes="fail", problem="any reason"),
        _waived("no regular expression", 6, waiver(match="("), problem="no regular expression"),
        _waived("no issue", 6, waiver(issue="soon"), becomes="fail", problem="no URL"),
        *(
            _waived(f"no {name}", 6, waiver(**{name: None}), becomes="fail", problem=name)
            for name in ("reason", "approved_by", "match", "issue", "versions", "expires", "id")
        ),
        _waived("empty reason", 6, waiver(reason=""), becomes="fail", problem="reason"),
        _waived("unknown field", 6, waiver(severity="low"), becomes="fail", problem="unknown"),
        _waived(
            "id twice",
            6,
            waiver(),
            waiver(check="discovery.finds"),
            becomes="fail",
            problem="id is used twice",
        ),
        _waived("check twice", 6, waiver(), waiver(id="W-2"), becomes="fail", problem="twice"),
        _waived(
            "not asked for",
            0,
            outcome=None,
            selected=frozenset({"discovery.finds", "ops.norm[float32]"}),
        ),
        _waived(
            "a second failure beside it",
            1,
            outcome=F,
            ends=[
                *evidence(changed(ops__norm____bfloat16=F, ops__norm____float32=F)).ends,
            ],
            becomes="waived",
            core="not_conformant",
        ),
        _waived(
            "outweighs a failure",
            6,
            waiver(expires=day(2026, 8, 31)),
            problem="expired",
            ends=[*evidence(changed(ops__norm____bfloat16=F, ops__norm____float32=F)).ends],
        ),
        _waived("of a rule's failure", 0, waiver(check="discovery.finds", match="not claimed"),
                outcome=P, core="conformant_with_waivers",
                ends=[*evidence(changed(discovery__finds=Outcome.NOT_CLAIMED)).ends]),
    ]  # fmt: skip


TABLE = [*_plain(), *_rules(), *_waivers()]


@dataclass(frozen=True)
class Engine:
    """The two modules that decide, or copies of them."""

    verdict: Any
    waivers: Any


REAL = Engine(verdict, waivers)


def is_right(one: Row, engine: Engine = REAL) -> bool:
    """Whether an engine draws the verdict that the row asks for."""
    parsed = engine.waivers.parse_waivers(one.waivers)
    results, footer = engine.verdict.decide(replace(one.evidence, waivers=parsed))
    outcomes = {result.id: result.outcome for result in results}
    has_reasons = all(one.reason or one.outcome is P for one in results)
    return footer.exit_code == one.code and has_reasons and bool(one.holds(outcomes, footer))


def broken_engine(module: str, old: str, new: str) -> Engine:
    """An engine in whose source one piece is another; the piece must stand there once."""
    sources = {
        one.__name__: Path(str(one.__file__)).read_text("utf-8") for one in (waivers, verdict)
    }
    name = next(name for name in sources if name.endswith(f".{module}"))
    if sources[name].count(old) != 1:
        raise ValueError(f"{old!r} stands {sources[name].count(old)} times in {name}")
    sources[name] = sources[name].replace(old, new)
    made = {}
    kept = dict(sys.modules)
    try:
        for full, source in sources.items():
            copy = types.ModuleType(full)
            copy.__file__ = "broken"
            sys.modules[full] = copy
            exec(compile(source, f"<{full}>", "exec"), copy.__dict__)
            made[full] = copy
    finally:
        sys.modules.update({full: kept[full] for full in sources})
    return Engine(made[verdict.__name__], made[waivers.__name__])
