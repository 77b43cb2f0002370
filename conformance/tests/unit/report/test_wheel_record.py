from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from dougong_conformance.report.wheel_record import (
    installed_path,
    of_installed,
    of_wheel,
    record_sha256,
)

FORMAT_FOLDER = Path(__file__).parents[4] / "docs" / "certificate"
TOLD = (FORMAT_FOLDER / "record_sha256.txt").read_text().strip()


@pytest.mark.parametrize("name", ["RECORD", "RECORD.installed"])
def test_the_published_examples_give_the_published_digest(name: str) -> None:
    assert record_sha256((FORMAT_FOLDER / name).read_text()) == TOLD


def test_a_wheel_that_carries_its_certificate_has_the_digest_that_it_had_without() -> None:
    lines = (FORMAT_FOLDER / "RECORD").read_text().splitlines()
    without = [line for line in lines if "conformance-certificate" not in line]
    assert len(without) == len(lines) - 1
    assert record_sha256("\n".join(without)) == TOLD


@pytest.mark.parametrize(
    ("written", "installed"),
    [
        ("acme/a.py", "acme/a.py"),
        ("acme-1.0.data/purelib/acme/a.py", "acme/a.py"),
        ("acme-1.0.data/platlib/acme/a.so", "acme/a.so"),
        ("acme-1.0.data/scripts/acme", ""),
        ("acme-1.0.dist-info/METADATA", "acme-1.0.dist-info/METADATA"),
        ("acme-1.0.dist-info/licenses/METADATA", ""),
        ("acme-1.0.dist-info/INSTALLER", ""),
        ("acme-1.0.dist-info/conformance-certificate.json", ""),
        ("../../bin/acme", ""),
        ("/usr/bin/acme", ""),
        ("acme/__pycache__/a.cpython-311.pyc", ""),
        ("", ""),
    ],
)
def test_each_rule_for_a_line_of_record(written: str, installed: str) -> None:
    assert installed_path(written) == installed


def test_a_wheel_file_is_read_by_its_one_record(tmp_path: Path) -> None:
    wheel = tmp_path / "acme-1.4.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("acme-1.4.1.dist-info/RECORD", (FORMAT_FOLDER / "RECORD").read_text())
    assert of_wheel(wheel) == TOLD
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a.txt", "")
    with pytest.raises(ValueError, match="has 0 RECORD files"):
        of_wheel(wheel)
    wheel.write_text("no zip")
    with pytest.raises(ValueError, match="is no wheel"):
        of_wheel(wheel)


def test_what_is_not_installed_has_no_digest() -> None:
    assert of_installed("no-such-distribution") == ""
    assert len(of_installed("pytest")) == 64
