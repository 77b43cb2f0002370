"""Whole runs, as a vendor starts them: the CPU platform, the simulated device in every mode, and a
wheel that only pretends to have a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.extra, pytest.mark.timeout(900)]

NUMERIC = ("ops", "attention", "kv", "sampling", "quantization")


def conform(python: str, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run the command; its exit code and what it printed."""
    done = subprocess.run(
        [python, "-m", "dougong_conformance", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout + done.stderr


def report_of(folder: Path) -> dict[str, Any]:
    """``report.json`` of a run."""
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


@pytest.mark.parametrize(
    ("plugin", "environment"),
    [
        ("cpu", {}),
        ("sim", {"SIM_MODE": "eager"}),
        ("sim", {"SIM_MODE": "lazy"}),
        ("sim", {"SIM_MODE": "thread", "SIM_DELAY_US": "2000"}),
    ],
    ids=["cpu", "sim eager", "sim lazy", "sim thread"],
)
def test_a_good_plugin_passes_everything(
    plugin: str, environment: dict[str, str], tmp_path: Path
) -> None:
    code, told = conform(
        sys.executable, "run", "--plugin", plugin, "--out", str(tmp_path), **environment
    )
    assert code == 0, told
    outcomes = {one["outcome"] for one in report_of(tmp_path)["results"]}
    assert outcomes <= {"pass", "not_claimed", "not_run"}


@pytest.fixture(scope="module")
def pretender(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Python of an environment with the wheel that ``dougong plugin new`` writes."""
    folder = tmp_path_factory.mktemp("pretender")
    made = (sys.executable, "-m", "dougong.cli.main", "plugin", "new", "acme")
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "dougong-acme")
    subprocess.run(build, cwd=folder, check=True, capture_output=True)
    (wheel,) = folder.glob("dougong-acme/dist/*.whl")
    environment = folder / "env"
    venv = (sys.executable, "-m", "venv", "--without-pip", str(environment))
    subprocess.run(venv, check=True, capture_output=True)
    below, python = sysconfig.get_path("purelib"), str(environment / "bin" / "python")
    ask = (python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    own = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()
    Path(own, "below.pth").write_text(f"import site; site.addsitedir({below!r})\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps")
    subprocess.run((*pip, str(wheel)), check=True, capture_output=True)
    return python


def test_a_pretended_device_computes_rightly_and_its_pretences_are_named(
    pretender: str, tmp_path: Path
) -> None:
    """Its arithmetic is torch's on the host; its memory and streams are made up."""
    profiles = [word for one in (*NUMERIC, "memory", "streams") for word in ("--profile", one)]
    code, told = conform(
        pretender, "run", "--plugin", "acme", *profiles, "--out", str(tmp_path / "out")
    )
    assert code == 1, told
    failed = {
        one["requirement"]
        for one in report_of(tmp_path / "out")["results"]
        if one["outcome"] not in ("pass", "not_claimed", "not_run")
    }
    assert {"memory.running_out_is_typed", "memory.peak_is_kept"} <= failed
    assert {one.partition(".")[0] for one in failed} == {"memory", "streams"}
