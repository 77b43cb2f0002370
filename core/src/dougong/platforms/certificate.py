"""A certificate of conformance, as the suite writes it and the core reads it.

A certificate is a statement and no signature: it guards against a wheel that was never tested, was
edited, or was tested long ago, and not against someone who writes a false one. The format is data:
docs/certificate has it with examples, and the core imports nothing of the suite.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from dougong.config.args import ConformanceLevel

FORMAT = "conformance-certificate/1"
ACCEPTED_SPECS = ("1.0",)
"""Minors of the specification that this core trusts: the newest, and the one before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What one run of the suite found about one wheel.

    Attributes:
        platform: Name of the platform that was tested.
        distribution: Name of the wheel.
        version: Of the wheel.
        record_sha256: See `dougong.platforms.wheel_record`.
        architectures: Of the devices that the suite ran on.
        spec: Minor version of the specification.
        issued: The day of the run.
        expires: The first day on which it holds no more.
        verdict: ``conformant`` or ``conformant_with_waivers``.
        core: Of the requirements of every plugin: ``passed``, ``required``, ``waived``.
        extended: Of those that hang on a claim: ``passed``, ``claimed``, ``offered``, ``waived``.
        rung: Of the verification ladder, ``"L6"``: on a chip; ``"L3"``: on a device double.
        waivers: Ids of the waivers that were used.
        path: File it was read from.
    """

    platform: str
    distribution: str
    version: str
    record_sha256: str
    architectures: tuple[str, ...]
    spec: str
    issued: date
    expires: date
    verdict: str
    core: Mapping[str, int]
    extended: Mapping[str, int]
    rung: str
    waivers: tuple[str, ...]
    path: str = ""

    @property
    def label(self) -> str:
        """``Core 1.0 (certificate 2026-11-30)``."""
        waived = self.core["waived"] + self.extended["waived"]
        told = f" with {waived} waived" if waived else ""
        return f"Core {self.spec}{told} (certificate {self.issued})"

    @property
    def details(self) -> str:
        """What it says, on one line."""
        core, more = self.core, self.extended
        return (
            f"Core {core['passed']}/{core['required']}, Ext {more['passed']}/{more['offered']}, "
            f"{core['waived'] + more['waived']} waived; ladder {self.rung}; tested on "
            f"{', '.join(self.architectures)}; until {self.expires}; {self.path}"
        )

    def shortfall(self, level: ConformanceLevel) -> str:
        """Why it does not reach ``level``; empty: it does."""
        core, more = self.core, self.extended
        if core["waived"] or core["passed"] < core["required"]:
            return f"of {core['required']} Core checks {core['passed']} passed unwaived"
        if level == "extended" and (more["waived"] or more["passed"] < more["claimed"]):
            return f"of {more['claimed']} claimed Extended checks {more['passed']} passed unwaived"
        if level == "extended" and not more["claimed"]:
            return "the plugin claims nothing that Extended checks test"
        return ""


class CertificateError(Exception):
    """A file is no certificate, or one that somebody edited; its text says why."""


def read_certificate(file: Path) -> Certificate:
    """Read one and hold it against its own digest.

    Raises:
        CertificateError: It cannot be read.
    """
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CertificateError(f"{file.name} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CertificateError(f"{file.name} has no format {FORMAT!r}")
    told = content.pop("sha256", None)
    if told != canonical_sha256(content):
        raise CertificateError(f"{file.name} was edited: its digest does not fit what it says")
    try:
        return _certificate(content, str(file))
    except (KeyError, TypeError, ValueError) as error:
        raise CertificateError(f"{file.name} lacks {error}") from error


def canonical_sha256(content: Mapping[str, Any]) -> str:
    """Of JSON with sorted keys, no blanks, and nothing but ASCII."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _certificate(content: Mapping[str, Any], path: str) -> Certificate:
    return Certificate(
        platform=str(content["platform"]),
        distribution=str(content["distribution"]),
        version=str(content["version"]),
        record_sha256=str(content["record_sha256"]),
        architectures=tuple(map(str, content["architectures"])),
        spec=str(content["spec"]),
        issued=date.fromisoformat(content["issued"]),
        expires=date.fromisoformat(content["expires"]),
        verdict=str(content["verdict"]),
        rung=str(content["rung"]),
        waivers=tuple(map(str, content["waivers"])),
        core={name: int(content["core"][name]) for name in _CORE},
        extended={name: int(content["extended"][name]) for name in _EXTENDED},
        path=path,
    )


_CORE = ("passed", "required", "waived")
_EXTENDED = ("passed", "claimed", "offered", "waived")
