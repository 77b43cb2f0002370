from __future__ import annotations

import json
from pathlib import Path

import pytest

from dougong_conformance.report.document import read_document
from dougong_conformance.report.write import FORMATS, write_all, write_forms
from tests.unit.report import made_up

FILES = {
    *("report.json", "report.md", "report.html", "junit.xml", "badge.json", "badge.svg"),
}


def test_every_form_is_written_into_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "out"
    report = write_all(made_up.failing(), folder, made_up.requirements())
    assert {path.name for path in folder.iterdir()} == FILES
    assert report.short == "Core 1.0 failed, Ext 7/12, 1 waived"


def test_a_run_that_earned_it_gets_a_certificate_and_another_one_takes_it_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "dougong_conformance.report.certificate.of_installed"
    monkeypatch.setattr(name, lambda distribution: "a" * 64)
    file = tmp_path / "conformance-certificate.json"
    write_all(made_up.passing(), tmp_path, made_up.requirements())
    assert json.loads(file.read_text())["record_sha256"] == "a" * 64
    told = "Certificate: conformance-certificate.json."
    assert told in (tmp_path / "report.md").read_text()
    write_all(made_up.passing(made_up.header(mode="run")), tmp_path, made_up.requirements())
    assert not file.exists()


def test_any_form_can_be_written_again_from_the_json_alone(tmp_path: Path) -> None:
    write_all(made_up.failing(), tmp_path, made_up.requirements())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = read_document(tmp_path)
    for path in tmp_path.iterdir():
        path.unlink()
    written = write_forms(kept, tmp_path, FORMATS)
    assert {path.name for path in written} == FILES
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_record_that_does_not_fit_the_schema_is_an_error_and_no_report(tmp_path: Path) -> None:
    record = made_up.passing(made_up.header(suite_version="0+unknown"))
    with pytest.raises(ValueError, match="suite_version"):
        write_all(record, tmp_path, made_up.requirements())
    assert list(tmp_path.iterdir()) == []
