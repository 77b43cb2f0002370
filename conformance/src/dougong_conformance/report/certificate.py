"""The certificate: written by ``certify`` alone, for a run that earned it; read by the core.

Format and rules: docs/certificate/README.md. It is a statement and no signature.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from dougong_conformance.report.ladder import highest_of_run
from dougong_conformance.report.model import Report
from dougong_conformance.report.wheel_record import CERTIFICATE_NAME, of_installed
from dougong_conformance.results import CoreVerdict

FORMAT = "conformance-certificate/1"
MONTHS = 12
_EARNED = frozenset({CoreVerdict.CONFORMANT, CoreVerdict.CONFORMANT_WITH_WAIVERS})


def why_not(report: Report, record_sha256: str) -> str:
    """Why a run earns no certificate; empty: it does."""
    header, footer = report.record.header, report.record.footer
    if header.mode != "certify":
        return f"this was `{header.mode}`; only `certify` gives a certificate"
    if not header.selection.is_everything:
        return "the run was not asked for the whole suite"
    if footer.exit_code:
        return f"the run ended with exit code {footer.exit_code}"
    if footer.core not in _EARNED:
        return f"Core is {footer.core.value.replace('_', ' ')}"
    if header.tampering or header.plugin.tampered:
        return "the environment was tampered with"
    if header.plugin.is_editable:
        return "the plugin is installed editable, so nothing pins what was tested; install a wheel"
    if not record_sha256:
        return "the plugin's wheel has no RECORD, so nothing pins what was tested"
    return ""


def certificate_note(report: Report) -> str:
    """Of a run of ``certify``: which certificate lies beside the report, or why none does."""
    if report.record.header.mode != "certify":
        return ""
    reason = why_not(report, report.record.header.plugin.record_sha256)
    return f"no certificate: {reason}" if reason else f"certificate: {CERTIFICATE_NAME}"


def certificate(report: Report, record_sha256: str) -> dict[str, Any]:
    """The certificate of a run that earned it.

    Args:
        report: Of the run.
        record_sha256: Of the plugin's wheel; see `report.wheel_record`.

    Raises:
        ValueError: The run did not earn it; says why.
    """
    if reason := why_not(report, record_sha256):
        raise ValueError(reason)
    header, footer = report.record.header, report.record.footer
    core, more = report.core, report.extended
    issued = date.fromisoformat(header.started[:10])
    content = {
        "format": FORMAT,
        "platform": header.plugin.name,
        "distribution": header.plugin.distribution,
        "version": header.plugin.version,
        "record_sha256": record_sha256,
        "architectures": sorted({str(one.get("arch", "")) for one in header.devices}),
        "is_double": header.is_double,
        "spec": header.spec_version,
        "suite": {"version": header.suite_version, "sha256": header.suite_sha256},
        "earned_with": {
            "dougong": header.core_version,
            "contract": header.contract_version,
            "torch": header.torch,
            "python": header.python,
        },
        "issued": issued.isoformat(),
        "expires": a_year_later(issued).isoformat(),
        "verdict": footer.core.value,
        "core": {"passed": core.passed, "required": core.offered, "waived": core.waived},
        "extended": {
            "passed": more.passed,
            "claimed": more.claimed,
            "offered": more.offered,
            "waived": more.waived,
        },
        "profiles": {name: one.verdict.value for name, one in sorted(footer.profiles.items())},
        "rung": highest_of_run(report.ladder),
        "waivers": sorted({one.waiver for one in report.results if one.waiver}),
        "results_sha256": footer.digest,
    }
    return {**content, "sha256": canonical_sha256(content)}


def write_certificate(report: Report, folder: Path) -> tuple[Path | None, str]:
    """Write the certificate if the run earned it, and remove one of an earlier run if not.

    Args:
        report: Of the run, whose plugin is installed in this process's environment.
        folder: Of the report.

    Returns:
        Its path, or ``None`` and why there is none.
    """
    path = folder / CERTIFICATE_NAME
    sha256 = of_installed(report.record.header.plugin.distribution)
    if reason := why_not(report, sha256):
        path.unlink(missing_ok=True)
        return None, reason
    path.write_text(to_text(certificate(report, sha256)), encoding="utf-8")
    return path, ""


def to_text(content: Mapping[str, Any]) -> str:
    """As it is written."""
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def canonical_sha256(content: Mapping[str, Any]) -> str:
    """Of JSON with sorted keys, no blanks, and nothing but ASCII."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def a_year_later(day: date) -> date:
    """The same day of the next year; the 1st of March after a 29th of February."""
    try:
        return day.replace(year=day.year + 1)
    except ValueError:
        return date(day.year + 1, 3, 1)


def read_certificate(path: Path) -> dict[str, Any]:
    """A certificate's content, its digest held against it.

    Raises:
        ValueError: It is none, or was edited.
        OSError: It cannot be read.
    """
    content = json.loads(path.read_text("utf-8"))
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path.name} has no format {FORMAT!r}")
    rest = {name: value for name, value in content.items() if name != "sha256"}
    if content.get("sha256") != canonical_sha256(rest):
        raise ValueError(f"{path.name} was edited: its digest does not fit what it says")
    return content


def problems(
    content: Mapping[str, Any], *, today: date, spec: str, record_sha256: str = ""
) -> Iterator[str]:
    """Why a certificate does not hold.

    Args:
        content: Of `read_certificate`.
        today: In UTC.
        spec: Minor of the specification that is trusted.
        record_sha256: Of the wheel it is held against; empty: of none.
    """
    if content["spec"] != spec:
        yield f"it is for specification {content['spec']}; this suite tests {spec}"
    if today >= date.fromisoformat(content["expires"]):
        yield f"it expired on {content['expires']}"
    if today < date.fromisoformat(content["issued"]):
        yield f"it was issued on {content['issued']}, and today is {today}"
    if record_sha256 and record_sha256 != content["record_sha256"]:
        yield "the wheel is another build than the one that was tested"
