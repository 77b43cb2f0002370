"""Makes ``docs/support.md``: what was shown of each vendor's wheel, by whom, and what was not.

    python core/tests/architecture/support_page.py --write

    python core/tests/architecture/support_page.py --lane NAME --report LANE/report.json

holds what is stated of a lane against the report that the lane has just written.

It reads, of every ``plugins/vendor-*``: ``support.toml``, ``pyproject.toml``, ``lane.toml`` and the
families of ``claims.toml``. ``support.toml`` has

```toml
distribution = "dougong-acme"
driver = "acme driver 7 or later"    # what the wheel needs
torch = "2.13"                       # what all of this was shown with

[chips]                              # family of claims.toml -> the names that people know
acme1 = "Acme 1000, 1200"

[[rung]]
rung = "L0"                          # of the ladder; or "beside": worth knowing, and no rung
families = ["acme1"]                 # left out: every one
shown = "every call binds to the published signatures of acme-rt 8.1"
by = "tests/rungs/test_calls.py"     # a file of tests of the wheel
lane = "acme"                        # lane of lane.toml that runs it; left out: every run of nox
packages = ["acme-rt 8.1"]           # of the vendor, that were really there; left out: none

[[profile]]                          # of the conformance suite
name = "ops"
on = "the simulated device"
by = "tests/rungs/test_suite.py"
```
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "support.md"
RUNGS = ("L0", "L1", "L2", "L3", "L4", "L5", "L6", "beside")
NEEDS_A_LANE = RUNGS[1:-1]
"""Rungs that nobody reaches without the vendor's own packages, compiler or chip."""

_KEYS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "": (frozenset({"distribution", "driver", "torch"}), frozenset({"chips", "rung", "profile"})),
    "rung": (frozenset({"rung", "shown", "by"}), frozenset({"families", "lane", "packages"})),
    "profile": (frozenset({"name", "on", "by"}), frozenset({"families", "lane", "packages"})),
}
"""Table → keys that it has, and keys that it may have."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """One vendor's.

    Attributes:
        folder: Of the project.
        version: Of the wheel.
        core: Versions of the core that it takes.
        families: That its claims know.
        lanes: Of ``lane.toml``.
        stated: ``support.toml``.
    """

    folder: Path
    version: str
    core: str
    families: tuple[str, ...]
    lanes: frozenset[str]
    stated: Mapping[str, Any]

    @property
    def distribution(self) -> str:
        """Name of the wheel."""
        return str(self.stated["distribution"])

    def of(self, kind: str, family: str | None = None) -> list[Mapping[str, Any]]:
        """Rungs or profiles, of one family or all."""
        every: list[Mapping[str, Any]] = list(self.stated.get(kind, ()))
        return [one for one in every if family is None or family in self.families_of(one)]

    def families_of(self, entry: Mapping[str, Any]) -> tuple[str, ...]:
        """That an entry speaks of."""
        return tuple(entry.get("families", self.families))


def read_wheels(root: Path = ROOT) -> list[Wheel]:
    """Every vendor's, by the names of their folders."""
    return [_read(folder) for folder in sorted((root / "plugins").glob("vendor-*"))]


def _read(folder: Path) -> Wheel:
    project = _toml(folder / "pyproject.toml")["project"]
    (claims,) = folder.glob("src/*/claims.toml")
    lanes = folder / "lane.toml"
    core = next(one for one in project["dependencies"] if re.match(r"dougong\b(?!-)", one))
    return Wheel(
        folder=folder,
        version=project["version"],
        core=core.removeprefix("dougong"),
        families=tuple(_toml(claims).get("family", {})),
        lanes=frozenset(_toml(lanes).get("lane", {})) if lanes.is_file() else frozenset(),
        stated=_toml(folder / "support.toml"),
    )


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text("utf-8"))


def problems_of(wheel: Wheel) -> Iterator[str]:
    """What a wheel states and cannot be so."""
    name = wheel.folder.name
    yield from (f"{name}: {problem}" for problem in _key_problems("", wheel.stated))
    for family in wheel.stated.get("chips", {}):
        if family not in wheel.families:
            yield f"{name}: chips names {family}, which its claims do not know"
    for kind in ("rung", "profile"):
        for index, entry in enumerate(wheel.of(kind)):
            place = f"{name}: {kind}[{index}]"
            told = list(_key_problems(kind, entry))
            told = told or list(_entry_problems(wheel, kind, entry))
            yield from (f"{place}: {problem}" for problem in told)


def _key_problems(kind: str, table: Mapping[str, Any]) -> Iterator[str]:
    needed, optional = _KEYS[kind]
    for key in sorted(needed - table.keys()):
        yield f"{key} is missing"
    for key in sorted(table.keys() - needed - optional):
        yield f"{key} is no key of it"


def _entry_problems(wheel: Wheel, kind: str, entry: Mapping[str, Any]) -> Iterator[str]:
    for family in entry.get("families", ()):
        if family not in wheel.families:
            yield f"family {family} is not in its claims"
    lane = entry.get("lane")
    if lane is not None and lane not in wheel.lanes:
        yield f"lane.toml has no lane {lane}"
    if kind == "rung":
        rung = entry["rung"]
        if rung not in RUNGS:
            yield f"there is no rung {rung}"
        elif rung in NEEDS_A_LANE and (lane is None or not entry.get("packages")):
            yield f"{rung} is shown in a lane, with packages of the vendor"
    file = wheel.folder / entry["by"]
    if not file.is_file():
        yield f"there is no file {entry['by']}"
        return
    text = file.read_text("utf-8")
    if "\ndef test_" not in text:
        yield f"{entry['by']} has no tests"
    is_marked = "mark.lane" in text
    if is_marked != (lane is not None):
        yield f"{entry['by']} is {'' if is_marked else 'not '}marked as a lane's"
    if lane is not None and kind == "rung" and not _writes(text, entry["rung"]):
        yield f"{entry['by']} writes no evidence of {entry['rung']}"


def lane_problems(wheel: Wheel, lane: str, report: Mapping[str, Any]) -> Iterator[str]:
    """What a wheel states of a lane that the lane's own report does not bear out.

    Args:
        wheel: Whose lane it is.
        lane: Its name.
        report: ``report.json`` as the lane wrote it.
    """
    states = {one["rung"]: one["state"] for one in report["ladder"]}
    for one in wheel.of("rung"):
        rung = one["rung"]
        if one.get("lane") == lane and rung != "beside" and states.get(rung) != "reached":
            yield (
                f"{wheel.folder.name}: {rung} is stated as shown in lane {lane}, and its report "
                f"says: {states.get(rung, 'nothing')}"
            )


def _writes(text: str, rung: str) -> bool:
    """Whether tests write evidence of a rung, as every lane's do; of L3 a run of the suite is."""
    if rung in ("L3", "L6"):
        return "run_on(" in text
    return f'"{rung}"' in text and ("shows(" in text or "evidence" in text)


def page(wheels: list[Wheel]) -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_overview(wheels), "", *(_section(one) for one in wheels)])


_HEAD = """# What is supported, and how that is known

Made from `plugins/vendor-*/support.toml` by `python core/tests/architecture/support_page.py --write`; a test holds it against them.

A rung says what was *shown* of a wheel, and never more; the [ladder](conformance.md) has their meaning. `*`: shown in a lane of its own
(`nox -s lane_NAME`), with packages of the vendor that are fetched for it. No rung `L6` means that nothing of the wheel has run on the chip.
"""  # noqa: E501 - lines of a page


def _overview(wheels: list[Wheel]) -> Iterator[str]:
    yield _row("chip family", "chips", "wheel", "driver", "torch", "core", "rungs", "profiles")
    yield _row(*["---"] * 8)
    for wheel in wheels:
        for family in wheel.families:
            yield _row(
                f"`{family}`",
                str(wheel.stated.get("chips", {}).get(family, "")),
                f"{wheel.distribution} {wheel.version}",
                str(wheel.stated["driver"]),
                str(wheel.stated["torch"]),
                f"`{wheel.core}`",
                _rungs(wheel, family),
                ", ".join(dict.fromkeys(one["name"] for one in wheel.of("profile", family)))
                or "none",
            )


def _rungs(wheel: Wheel, family: str) -> str:
    found: dict[str, bool] = {}
    for one in wheel.of("rung", family):
        if one["rung"] != "beside":
            found[one["rung"]] = found.get(one["rung"], True) and "lane" in one
    marked = (rung + ("*" if found[rung] else "") for rung in RUNGS if rung in found)
    return " ".join(marked) or "none"


def _section(wheel: Wheel) -> str:
    lines = [f"## {wheel.distribution}", "", _row("rung", "families", "shown", "by", "with")]
    lines.append(_row(*["---"] * 5))
    order = {rung: at for at, rung in enumerate(RUNGS)}
    shown_rungs = sorted(wheel.of("rung"), key=lambda one: order[one["rung"]])
    lines += [_evidence(wheel, one["rung"], one, one["shown"]) for one in shown_rungs]
    for one in wheel.of("profile"):
        shown = f"profile `{one['name']}` of the suite, on {one['on']}"
        lines.append(_evidence(wheel, "suite", one, shown))
    missing = [rung for rung in RUNGS[:-1] if rung not in {one["rung"] for one in wheel.of("rung")}]
    if missing:
        lines += ["", f"Not shown: {', '.join(missing)}."]
    return "\n".join([*lines, ""])


def _evidence(wheel: Wheel, rung: str, one: Mapping[str, Any], shown: str) -> str:
    families = wheel.families_of(one)
    named = "every one" if families == wheel.families else ", ".join(map("`{}`".format, families))
    path = f"plugins/{wheel.folder.name}/{one['by']}"
    lane = f", `nox -s lane_{one['lane']}`" if "lane" in one else ""
    packages = ", ".join(one.get("packages", ())) or "no package of the vendor"
    return _row(rung, named, shown, f"[{one['by']}](../{path}){lane}", packages)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """``--write`` it, or say whether it is what it would be, or hold a lane's report against it."""
    parser = argparse.ArgumentParser(description="docs/support.md from plugins/vendor-*.")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--lane")
    parser.add_argument("--report", type=Path)
    asked = parser.parse_args()
    wheels = read_wheels()
    told = [problem for wheel in wheels for problem in problems_of(wheel)]
    if asked.report is not None:
        report = json.loads(asked.report.read_text("utf-8"))
        told += [one for wheel in wheels for one in lane_problems(wheel, asked.lane, report)]
    if told:
        sys.stderr.write("\n".join(told) + "\n")
        return 1
    if asked.report is not None:
        return 0
    if asked.write:
        PAGE.write_text(page(wheels), "utf-8")
        return 0
    return int(PAGE.read_text("utf-8") != page(wheels))


if __name__ == "__main__":
    sys.exit(main())
