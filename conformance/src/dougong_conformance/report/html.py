"""``report.html``: one file that needs nothing else, for reading, printing and passing on."""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from dougong_conformance.outcomes import Outcome
from dougong_conformance.report.certificate import certificate_note
from dougong_conformance.report.grid import columns, grid
from dougong_conformance.report.model import SYMBOLS, Report
from dougong_conformance.report.strips import TICKS, number, position, shapes, strips
from dougong_conformance.results import CaseResult

HTML_FILE = "report.html"
_MOST_STRIPS = 24
_TRACEBACK = 4000
_WORDS = {"device_lost": "device lost", "waiver_violation": "waiver violated"}


def to_html(report: Report) -> str:
    """The page."""
    dtypes = columns(report)
    shape_of = shapes(dtypes[1:])
    drawn = strips(report, shape_of)
    counts = Counter(one.outcome.value for one in report.results)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            header=report.record.header,
            footer=report.record.footer,
            certificate=certificate_note(report),
            dtypes=dtypes,
            grid=grid(report),
            shapes=shape_of,
            strips=drawn[:_MOST_STRIPS],
            more_strips=drawn[_MOST_STRIPS:],
            ticks=[(text, position(10**power)) for text, power in TICKS],
            by_profile=_by_profile(report),
            outcomes=[(one.value, counts[one.value]) for one in Outcome if counts[one.value]],
            css=Markup(_text("style.css")),  # our own files
            script=Markup(_text("report.js")),
        )
    )


def word(name: str) -> str:
    """An outcome or verdict as people say it."""
    return _WORDS.get(name, name.replace("_", " "))


def search_text(one: CaseResult) -> str:
    """What the filter looks at."""
    parts = (
        *(one.id, one.outcome.value, word(one.outcome.value), one.reason, one.capability),
        *(f"profile:{one.profile}", f"dtype:{one.dtype or 'none'}", *one.warnings),
    )
    return " ".join(part for part in parts if part).lower()


def worst_metric(one: CaseResult) -> str:
    """The measurement that is nearest to its limit, in words; empty: there is none."""
    limited = [m for m in one.metrics if m.limit is not None and m.limit > 0]
    if not limited:
        return ""
    worst = max(limited, key=lambda m: m.value / (m.limit or 1.0))
    return f"{number(worst.value)} / {number(worst.limit or 0.0)}"


def _by_profile(report: Report) -> list[tuple[str, list[CaseResult]]]:
    found: dict[str, list[CaseResult]] = {}
    for one in report.results:
        found.setdefault(one.profile, []).append(one)
    return list(found.items())


def _trimmed(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _TRACEBACK else f"...{text[-_TRACEBACK:]}"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dougong_conformance.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    tools: dict[str, Any] = {
        "symbol": lambda name: SYMBOLS.get(name, ""),
        "word": word,
        "search_text": search_text,
        "worst_metric": worst_metric,
        "number": number,
        "trimmed": _trimmed,
    }
    environment.globals.update(tools)
    return environment


def _text(name: str) -> str:
    return files("dougong_conformance.report").joinpath("templates", name).read_text("utf-8")
