from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from dougong.platforms.certificate import CertificateError, read_certificate
from tests.support.certified import CertifiedWheel

EXAMPLE = Path(__file__).parents[4] / "docs" / "certificate" / "conformance-certificate.json"
EXTENDED = {"passed": 7, "claimed": 7, "offered": 9, "waived": 0}


def test_the_published_example_is_read() -> None:
    found = read_certificate(EXAMPLE)
    assert (found.platform, found.distribution, found.version) == ("acme", "acme-dougong", "1.4.1")
    assert (found.issued, found.expires) == (date(2026, 11, 30), date(2027, 11, 30))
    assert found.label == "Core 1.0 with 1 waived (certificate 2026-11-30)"
    assert found.details.startswith("Core 88/88, Ext 7/9, 1 waived; ladder L6; tested on acme-b1")
    assert found.waivers == ("ACME-2026-004",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not json", "cannot be read"),
        ("[1]", "no format"),
        ('{"format": "conformance-certificate/2"}', "no format"),
        ('{"format": "conformance-certificate/1"}', "was edited"),
    ],
)
def test_what_is_no_certificate_is_refused_with_the_reason(
    tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(CertificateError, match=rf"a\.json.*{reason}"):
        read_certificate(file)


def test_a_certificate_that_somebody_edited_is_refused(tmp_path: Path) -> None:
    content = json.loads(EXAMPLE.read_text())
    content["extended"]["waived"] = 0
    file = tmp_path / "a.json"
    file.write_text(json.dumps(content))
    with pytest.raises(CertificateError, match="was edited"):
        read_certificate(file)


def test_a_field_that_is_not_there_is_named(tmp_path: Path) -> None:
    wheel = CertifiedWheel(tmp_path)
    file = wheel.certify(tmp_path, core={"passed": 1})
    with pytest.raises(CertificateError, match="'required'"):
        read_certificate(file)


@pytest.mark.parametrize(
    ("changes", "core", "extended"),
    [
        ({}, "", ""),
        ({"core": {"passed": 88, "required": 88, "waived": 1}}, "88 passed", "88 passed"),
        ({"core": {"passed": 87, "required": 88, "waived": 0}}, "87 passed", "87 passed"),
        ({"extended": {**EXTENDED, "waived": 1}}, "", "of 7 claimed"),
        ({"extended": {**EXTENDED, "passed": 6}}, "", "6 passed"),
        ({"extended": {**EXTENDED, "passed": 0, "claimed": 0}}, "", "claims nothing"),
    ],
)
def test_waived_checks_do_not_count_towards_a_level(
    tmp_path: Path, changes: dict[str, Any], core: str, extended: str
) -> None:
    found = read_certificate(CertifiedWheel(tmp_path).certify(tmp_path, **changes))
    told_of = found.shortfall("core"), found.shortfall("extended")
    for expected, told in zip((core, extended), told_of, strict=True):
        assert (expected in told) if expected else told == ""
