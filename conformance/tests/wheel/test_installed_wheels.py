"""The three wheels as a user has them: run by `nox -s wheels` where the source is out of reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import dougong_conformance

BIN = Path(sys.executable).parent


def run(*command: str, code: int = 0, **environment: str) -> str:
    """Run a script of this environment; what it printed."""
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env={**os.environ, **environment},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate of the installed simulated device."""
    out = tmp_path_factory.mktemp("out")
    run("dougong-conform", "certify", "--plugin", "sim", "--out", str(out))
    return out


def test_what_is_imported_is_the_wheel() -> None:
    assert "site-packages" in Path(dougong_conformance.__file__).parts


def test_the_wheels_carry_their_types_and_licences_and_no_tests() -> None:
    for distribution, package in (
        ("dougong-conformance", "dougong_conformance"),
        ("dougong-sim", "dougong_sim"),
    ):
        names = {str(path) for path in metadata.files(distribution) or []}
        assert f"{package}/py.typed" in names
        assert any(name.endswith("LICENSE") for name in names)
        assert not [name for name in names if name.startswith("tests/")]


def test_every_device_of_the_simulated_platform_passes_the_doctor() -> None:
    told = json.loads(run("dougong", "doctor", "--platform", "sim", "--json"))
    (row,) = [one for one in told["plugins"] if one["name"] == "sim"]
    assert row["verdict"] == "chosen"
    assert len(row["devices"]) == 8


def test_the_plugin_passes_its_suite(certified: Path) -> None:
    report = json.loads((certified / "report.json").read_text())
    assert report["format"] == "conformance-report/1"
    assert (certified / "conformance-certificate.json").exists()


def test_a_start_may_insist_on_the_certificate(certified: Path, tmp_path: Path) -> None:
    asked = ("dougong", "explain", "demo", "--platform", "sim", "--require-conformance", "core")
    told = run(*asked, code=2)
    assert "no certificate" in told
    assert "sim/tiles" in run(*asked, DOUGONG_CERTIFICATES=str(certified))
