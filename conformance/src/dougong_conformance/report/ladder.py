"""The verification ladder: what is proved about a wheel, rung by rung, and by what evidence.

A run of the suite gives L3 on a device double and L6 on a chip; on a double whose runtime is
another platform's it gives neither, and the report says what it was. The other rungs come from
evidence files, which the vendor's own tests write into ``evidence`` beside the report. Nothing is
inferred: a rung without evidence says so, and a higher rung says nothing of a lower one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema

from dougong_conformance.outcomes import Outcome
from dougong_conformance.results import CoreVerdict, ProfileVerdict, RunRecord

EVIDENCE_FORMAT = "conformance-evidence/1"
EVIDENCE_FOLDER = "evidence"
NO_EVIDENCE = "no evidence"

MEANINGS: Mapping[str, str] = {
    "L0": "every vendor call binds to the vendor's published signatures (golden schemas)",
    "L1": "the vendor's real schemas, registered in torch's dispatcher, accept the calls",
    "L2": "the vendor's own meta kernels accept shapes and dtypes on a fake device",
    "L3": "the plugin runs end to end on a device double, greedy-equal to the CPU",
    "L4": "its kernels compile with the vendor's real compiler within the chip's limits",
    "L5": "its kernel source runs on the CPU with the right numbers",
    "L6": "the suite passes on the chip",
}
"""Rung → what it says, lowest first."""

BESIDE = "beside"
"""In place of a rung, in an evidence file: worth knowing, and proof of no rung."""

FROM_FILES = ("L0", "L1", "L2", "L4", "L5")
"""Rungs that the vendor's own tests give evidence of; the others need a run of the suite."""


_FAILED = (1, 6)
"""Exit codes that speak against a plugin; with any other bad one the run proved nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one test run of the vendor showed.

    Attributes:
        rung: ``"L0"``; one of `FROM_FILES`, or `BESIDE`.
        what: One sentence with numbers: ``"87 of 87 calls bind to the schemas of acme 8.1"``.
        command: That shows it again.
        when: ISO 8601.
        result: ``"passed"`` or ``"failed"``.
        distribution: The wheel that was tested.
        version: Of it.
        file: Name of the evidence file.
    """

    rung: str
    what: str
    command: str
    when: str
    result: str
    distribution: str
    version: str
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One rung, and what stands behind it.

    Attributes:
        name: ``"L3"``.
        meaning: What it says.
        state: ``"reached"``, ``"failed"`` or ``"no evidence"``.
        evidence: Sentences; of a rung that is not reached: why not.
        commands: That show the evidence again.
    """

    name: str
    meaning: str
    state: str
    evidence: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @property
    def is_reached(self) -> bool:
        """There is evidence, and none against it."""
        return self.state == "reached"


def climb(record: RunRecord, evidence: Iterable[Evidence] = ()) -> tuple[Rung, ...]:
    """Every rung, lowest first."""
    known = tuple(evidence)
    return tuple(
        of_files(name, [one for one in known if one.rung == name])
        if name in FROM_FILES
        else _from_run(name, record)
        for name in MEANINGS
    )


def highest_of_run(rungs: Iterable[Rung]) -> str:
    """``"L6"``, ``"L3"``, or ``"none"``: what the run of the suite itself shows."""
    reached = [one.name for one in rungs if one.is_reached and one.name not in FROM_FILES]
    return reached[-1] if reached else "none"


def read_evidence(folder: Path, record: RunRecord) -> tuple[tuple[Evidence, ...], tuple[str, ...]]:
    """Evidence files of a report, and what is wrong with those that do not count.

    Args:
        folder: Of the report; ``evidence/*.json`` in it is read.
        record: Whose wheel the evidence must be about.
    """
    found: list[Evidence] = []
    problems: list[str] = []
    for file in sorted((folder / EVIDENCE_FOLDER).glob("*.json")):
        try:
            one = evidence_from_json(json.loads(file.read_text("utf-8")), file.name)
        except (OSError, ValueError) as error:
            problems.append(f"{file.name} does not count: {error}")
            continue
        plugin = record.header.plugin
        if (one.distribution, one.version) != (plugin.distribution, plugin.version):
            problems.append(
                f"{file.name} does not count: it is about {one.distribution} {one.version}, and "
                f"this report is about {plugin.distribution} {plugin.version}"
            )
            continue
        found.append(one)
    return tuple(found), tuple(problems)


def evidence_from_json(content: Any, file: str = "") -> Evidence:
    """One piece of evidence.

    Raises:
        ValueError: It does not fit ``evidence.schema.json``; says where.
    """
    for error in sorted(_validator().iter_errors(content), key=lambda one: one.json_path):
        raise ValueError(f"{error.json_path}: {error.message}")
    kept = {name: content[name] for name in Evidence.__slots__ if name in content}
    return Evidence(**{**kept, "file": file})


@cache
def _validator() -> jsonschema.Draft202012Validator:
    text = files("dougong_conformance.report").joinpath("evidence.schema.json").read_text("utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))


def of_files(name: str, evidence: Sequence[Evidence]) -> Rung:
    """A rung as the evidence files of it have it."""
    has_failed = any(one.result != "passed" for one in evidence)
    state = "failed" if has_failed else "reached" if evidence else NO_EVIDENCE
    return Rung(
        name=name,
        meaning=MEANINGS[name],
        state=state,
        evidence=tuple(f"{one.what} ({one.result}, {one.when}; {one.file})" for one in evidence),
        commands=tuple(one.command for one in evidence),
    )


def _from_run(name: str, record: RunRecord) -> Rung:
    header = record.header
    is_for_this = header.is_double == (name == "L3")
    if is_for_this:
        state, sentence = _on_double(record) if name == "L3" else _on_chip(record)
    elif header.is_double:
        state, sentence = NO_EVIDENCE, "this run was on a device double, which is no chip"
    else:
        state, sentence = NO_EVIDENCE, "this run was on the device itself, not on a double"
    return Rung(
        name=name,
        meaning=MEANINGS[name],
        state=state,
        evidence=(sentence,),
        commands=(f"dougong-conform {header.mode} --plugin {header.plugin.name}",)
        if state == "reached"
        else (),
    )


def _on_double(record: RunRecord) -> tuple[str, str]:
    state, sentence = _engine_on_double(record)
    if not record.header.is_runtime_replaced:
        return state, sentence
    device = record.header.facts.get("device_type") or "another platform's"
    return NO_EVIDENCE, (
        f"engine on the simulated device ({device}); the vendor's runtime was replaced, so that "
        f"this is no rung: {sentence}"
    )


def _engine_on_double(record: RunRecord) -> tuple[str, str]:
    summary = record.footer.profiles.get("engine")
    greedy = [one for one in record.results if one.profile == "engine" and "greedy" in one.id]
    if summary is None or not greedy:
        return NO_EVIDENCE, "this run has no result of greedy equality in the engine profile"
    if any(one.outcome is not Outcome.PASS for one in greedy):
        return "failed", "greedy tokens are not equal to the CPU's, or that was not shown"
    if summary.verdict is not ProfileVerdict.PASSED:
        return "failed", f"the engine profile is {summary.verdict.value}"
    if record.footer.exit_code:
        return NO_EVIDENCE, f"this run ended with exit code {record.footer.exit_code}"
    return "reached", (
        f"engine profile passed on a device double: {summary.required} cases, greedy equality to "
        f"the CPU among them; suite {record.header.suite_version}"
    )


def _on_chip(record: RunRecord) -> tuple[str, str]:
    header, footer = record.header, record.footer
    if not header.selection.is_everything or header.mode not in {"run", "certify"}:
        return NO_EVIDENCE, "this run did not ask for the whole suite"
    if footer.exit_code:
        state = "failed" if footer.exit_code in _FAILED else NO_EVIDENCE
        return state, f"this run ended with exit code {footer.exit_code}"
    if footer.core is not CoreVerdict.CONFORMANT:
        return NO_EVIDENCE, "Core passed with waivers only"
    names = ", ".join(str(one.get("name", "?")) for one in header.devices[:2]) or "its device"
    passed = footer.counts.get(Outcome.PASS.value, 0)
    return "reached", (
        f"{passed} cases passed on {names}, none failed; suite {header.suite_version}"
    )
