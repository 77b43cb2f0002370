from __future__ import annotations

import json
from pathlib import Path

import pytest

from dougong.platforms.wheel_record import (
    changed_files,
    installed_record,
    is_editable,
    parse_record,
)
from tests.support.certified import CertifiedWheel

FORMAT_FOLDER = Path(__file__).parents[4] / "docs" / "certificate"


@pytest.mark.parametrize("name", ["RECORD", "RECORD.installed"])
def test_the_record_of_a_wheel_and_of_what_was_installed_give_the_published_digest(
    name: str,
) -> None:
    told = (FORMAT_FOLDER / "record_sha256.txt").read_text().strip()
    assert parse_record((FORMAT_FOLDER / name).read_text()).sha256 == told


def test_a_certificate_is_listed_and_changes_no_digest() -> None:
    text = (FORMAT_FOLDER / "RECORD").read_text()
    record = parse_record(text)
    assert record.certificates == ("acme_dougong/conformance-certificate.json",)
    kept = [line for line in text.splitlines() if "conformance-certificate" not in line]
    without = parse_record("\n".join(kept))
    assert (without.sha256, without.certificates) == (record.sha256, ())


def test_one_changed_line_changes_the_digest() -> None:
    text = (FORMAT_FOLDER / "RECORD").read_text()
    assert parse_record(text.replace("n4bQ", "n4bR")).sha256 != parse_record(text).sha256
    assert parse_record("").sha256 == ""


def test_files_that_are_not_as_recorded_are_named(tmp_path: Path) -> None:
    wheel = CertifiedWheel(tmp_path)
    record = installed_record(str(wheel.info))
    assert record is not None
    assert list(changed_files(record, str(wheel.info))) == []
    (wheel.package / "hooks.py").write_text("# mended in place\n")
    (wheel.package / "runtime.py").unlink()
    (wheel.package / "extra.py").write_text("")
    (wheel.package / "__pycache__").mkdir()
    (wheel.package / "__pycache__" / "hooks.cpython-311.pyc").write_bytes(b"")
    (wheel.package / "cache.bin").write_bytes(b"a runtime may keep things beside its code")
    assert list(changed_files(record, str(wheel.info))) == [
        "fakeplat/hooks.py",
        "fakeplat/runtime.py",
        "fakeplat/extra.py",
    ]


def test_a_hash_of_an_unknown_kind_counts_as_changed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    record = parse_record("a.py,whirl=abc,1")
    assert list(changed_files(record, str(tmp_path / "x.dist-info"))) == ["a.py"]


def test_an_editable_install_is_known_by_its_url(tmp_path: Path) -> None:
    assert not is_editable(str(tmp_path))
    (tmp_path / "direct_url.json").write_text(json.dumps({"dir_info": {"editable": True}}))
    assert is_editable(str(tmp_path))
    (tmp_path / "direct_url.json").write_text(json.dumps({"url": "file:///a.whl"}))
    assert not is_editable(str(tmp_path))
    assert installed_record(str(tmp_path)) is None
