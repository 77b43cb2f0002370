"""``badge.json`` and ``badge.svg``: a numerator and a denominator, never a percentage."""

from __future__ import annotations

import json
from xml.sax.saxutils import escape, quoteattr

from dougong_conformance.report.model import Report
from dougong_conformance.results import CoreVerdict

BADGE_JSON = "badge.json"
BADGE_SVG = "badge.svg"
LABEL = "conformance"

_GREEN, _YELLOW, _RED, _GREY = "#2b7a2b", "#8a6100", "#b3261e", "#5c5f66"
_HEIGHT = 20
_PADDING = 8
_WIDE, _NARROW, _USUAL = 9.0, 4.0, 6.6


def to_badge(report: Report) -> dict[str, object]:
    """For a badge service's endpoint."""
    return {
        "schemaVersion": 1,
        "label": LABEL,
        "message": report.short,
        "color": colour(report).lstrip("#"),
        "isError": report.record.footer.exit_code != 0,
    }


def to_badge_json(report: Report) -> str:
    """As it is written."""
    return json.dumps(to_badge(report), indent=1) + "\n"


def colour(report: Report) -> str:
    """Green only for a whole run that ended well, with no waiver."""
    footer = report.record.footer
    if report.is_partial or footer.core is CoreVerdict.INCOMPLETE:
        return _GREY
    if footer.core is CoreVerdict.NOT_CONFORMANT or footer.exit_code in {1, 4, 6, 7}:
        return _RED
    is_plain = footer.core is CoreVerdict.CONFORMANT and not report.waived
    return _GREEN if is_plain and not footer.exit_code else _YELLOW


def to_badge_svg(report: Report) -> str:
    """A static picture of it; white on dark, with the text as its name."""
    left, right = _width(LABEL), _width(report.short)
    whole = left + right
    title = f"{LABEL}: {report.short}"
    parts = (_text(LABEL, left / 2, left), _text(report.short, left + right / 2, right))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole:.0f}" height="{_HEIGHT}" '
        f'role="img" aria-label={quoteattr(title)}>\n'
        f"<title>{escape(title)}</title>\n"
        f'<clipPath id="r"><rect width="{whole:.0f}" height="{_HEIGHT}" rx="3"/></clipPath>\n'
        f'<g clip-path="url(#r)"><rect width="{left:.0f}" height="{_HEIGHT}" fill="#3c3f45"/>'
        f'<rect x="{left:.0f}" width="{right:.0f}" height="{_HEIGHT}" '
        f'fill="{colour(report)}"/></g>\n'
        f'<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" '
        f'font-size="11">{"".join(parts)}</g>\n</svg>\n'
    )


def _text(text: str, middle: float, width: float) -> str:
    length = width - 2 * _PADDING
    return f'<text x="{middle:.1f}" y="14" textLength="{length:.1f}">{escape(text)}</text>'


def _width(text: str) -> float:
    """Pixels that a text takes in 11 px Verdana, near enough: the text is fitted to it."""
    letters = sum(
        _WIDE if one in "mwMW@" else _NARROW if one in "ijl.,:/() |" else _USUAL for one in text
    )
    return letters + 2 * _PADDING
