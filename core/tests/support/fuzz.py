"""Requests that a machine made up from a server's own document, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import schemathesis
from schemathesis.engine import events, from_schema

LEFT_OUT = {
    "positive_data_acceptance": "what goes with what stands in no document, nor do ranges",
}
REFUSALS = ("400", "401", "403", "404", "405", "413", "415", "431")  # of requests that do not fit


@dataclass
class FuzzReport:
    """What a run found.

    Attributes:
        answers: Number of answers by route and status; status 0 is none.
        failures: Promises that were broken, each with its first request and answer.
    """

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)

    def routes(self) -> set[str]:
        """Every route that was asked, as ``POST /path``."""
        return {route for route, _ in self.answers}

    def num(self, route: str, status: int) -> int:
        """Answers of a route with a status."""
        return self.answers[route, status]

    def summary(self) -> str:
        """A line for each route; those that only said "no such method" share one."""
        lines = []
        for route in sorted(self.routes()):
            counts = {status: num for (one, status), num in self.answers.items() if one == route}
            told = ", ".join(f"{status}: {num}" for status, num in sorted(counts.items()))
            if set(counts) != {405}:
                lines.append(f"{route:<36} {sum(counts.values()):>5}  {told}")
        wrong_methods = sum(num for (_, status), num in self.answers.items() if status == 405)
        lines.append(f"{'methods that a route has not':<36} {wrong_methods:>5}  405")
        total = sum(self.answers.values())
        return "\n".join([*lines, f"{total} requests, {len(self.failures)} failures"])

    def told(self) -> str:
        """The failures."""
        return "\n\n".join(f"{what}\n{how}" for what, how in self.failures.items())


def fuzz(
    url: str,
    *,
    seed: int,
    max_examples: int,
    has_coverage: bool = False,
    narrowed_to: Mapping[str, Any] | None = None,
) -> FuzzReport:
    """Ask every route of the server's document, with requests that fit it and that do not.

    Args:
        url: Of a server.
        seed: The same one makes the same requests of the same document.
        max_examples: Of each kind of request to each route.
        has_coverage: Go through every boundary of every field, too.
        narrowed_to: Schemas by the name of a field. Then all requests fit the document and these,
            and fields that the document lets be anything are left out: most requests are obeyed.
    """
    document = httpx.get(f"{url}/openapi.json", timeout=30).raise_for_status().json()
    is_narrowed = narrowed_to is not None
    if narrowed_to is not None:
        narrow(document, narrowed_to)
    config = schemathesis.Config.from_dict(
        {
            "seed": seed,
            "base-url": url,
            "request-timeout": 30,
            "generation": {
                "max-examples": max_examples,
                "deterministic": True,
                "no-shrink": True,
                "database": "none",
                "mode": "positive" if is_narrowed else "all",
            },
            "checks": {
                "negative_data_rejection": {"expected-statuses": list(REFUSALS)},
                **{name: {"enabled": False} for name in LEFT_OUT},
            },
            "phases": {
                "examples": {"enabled": False},
                "coverage": {"enabled": has_coverage},
                "fuzzing": {"error-feedback": {"enabled": False}},
                "stateful": {"enabled": False},
            },
        }
    )
    report = FuzzReport()
    schema = schemathesis.openapi.from_dict(document, config=config)
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            _note(report, event)
        elif isinstance(event, events.NonFatalError):
            report.failures[f"{event.label}: {type(event.value).__name__}"] = str(event.value)
        elif isinstance(event, events.FatalError):
            raise event.exception
    return report


def narrow(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Change schemas of fields in a document, in place; see `fuzz`."""
    for schema in document["components"]["schemas"].values():
        given = schema.get("properties", {})
        kept = {name: fields.get(name, one) for name, one in given.items()}
        kept = {name: one for name, one in kept.items() if one and set(one) != {"default"}}
        if given:
            schema["properties"] = kept


def _note(report: FuzzReport, event: events.ScenarioFinished) -> None:
    recorder = event.recorder
    for case_id, interaction in recorder.interactions.items():
        case, answer = recorder.cases[case_id].value, interaction.response
        status = 0 if answer is None else answer.status_code
        report.answers[f"{case.method} {case.operation.path}", status] += 1
        if answer is None:
            what = f"{case.operation.label}: no answer"
            report.failures.setdefault(what, case.as_curl_command())
    for case_id, checks in recorder.checks.items():
        found = recorder.interactions.get(case_id)
        answer = None if found is None else found.response
        said = "" if answer is None else f"{answer.status_code} {answer.text[:300]}"
        for check in checks:
            if (info := check.failure_info) is not None:
                what = f"{event.label}: {check.name}: {info.failure.title}"
                how = f"{info.failure.message}\n{info.code_sample[:1000]}\n{said}"
                report.failures.setdefault(what, how)
