from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from dougong_conformance.ladder import evidence
from dougong_conformance.report.ladder import evidence_from_json

SAID = "87 of 87 calls bind to the schemas of acme 8.1"


def test_what_is_written_fits_the_schema_and_names_the_wheel(tmp_path: Path) -> None:
    path = evidence.write(
        tmp_path, "L0", SAID, "nox -s vendors", True, "dougong", details={"calls": 87}
    )
    assert path.parent == tmp_path / "evidence"
    assert path.name == "l0-87-of-87-calls-bind-to-the-schemas-of-acme-8-1.json"
    content = json.loads(path.read_text())
    assert content["details"] == {"calls": 87}
    one = evidence_from_json(content, path.name)
    assert (one.rung, one.result, one.what) == ("L0", "passed", SAID)
    assert (one.distribution, one.version) == ("dougong", metadata.version("dougong"))


def test_what_was_not_shown_is_written_as_well(tmp_path: Path) -> None:
    path = evidence.write(tmp_path, "L4", "3 of 9 kernels spill", "make", False, "dougong")
    assert json.loads(path.read_text())["result"] == "failed"


def test_two_things_that_were_shown_are_two_files(tmp_path: Path) -> None:
    long = "a sentence that is longer than any name of a file should be, on chip "
    for chip in ("one", "two"):
        evidence.write(tmp_path, "L4", long + chip, "make", True, "dougong")
    assert len(list((tmp_path / "evidence").iterdir())) == 2


@pytest.mark.parametrize(
    ("rung", "what", "command"),
    [("L3", SAID, "x"), ("L6", SAID, "x"), ("L0", "ok", "x"), ("L0", SAID, "")],
)
def test_what_no_test_can_show_or_what_says_nothing_is_refused(
    tmp_path: Path, rung: str, what: str, command: str
) -> None:
    with pytest.raises(ValueError, match=r"^\$"):
        evidence.write(tmp_path, rung, what, command, True, "dougong")
    assert not (tmp_path / "evidence").exists()


def test_a_wheel_that_is_not_installed_gives_no_evidence(tmp_path: Path) -> None:
    with pytest.raises(metadata.PackageNotFoundError):
        evidence.write(tmp_path, "L0", SAID, "x", True, "dougong-nobody")
