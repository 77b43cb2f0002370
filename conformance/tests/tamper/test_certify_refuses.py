"""What certify refuses before it believes anything: exit 7, whatever the checks say."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from dougong_conformance.runner.environment import (
    clean_command,
    executor_environment,
    judge_environment,
)
from dougong_conformance.runner.tampering import signs
from dougong_conformance.runner.wheels import InstalledPlugin, identify
from tests.tamper.toys import write_plugin


def told(plugin: InstalledPlugin, environment: dict[str, str] | None = None) -> str:
    return " | ".join(signs(plugin, identify(plugin), environment or {}))


def test_a_wheel_as_it_was_built_shows_no_sign(tmp_path: Path) -> None:
    assert "toy" not in told(write_plugin(tmp_path))


def test_an_edited_file_is_found(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path)
    (tmp_path / "toy_platform.py").write_text("# mine now\n")
    assert "files of dougong-toy are not those of its wheel: toy_platform.py" in told(plugin)


def test_a_missing_file_is_found(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path)
    (tmp_path / "toy_plugin.py").unlink()
    assert "toy_plugin.py (missing)" in told(plugin)


def test_a_wheel_without_its_record_is_refused(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path)
    (tmp_path / "dougong_toy-1.0.dist-info" / "RECORD").unlink()
    assert "has no RECORD" in told(plugin)


def test_an_editable_install_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    url = '{"url": "file:///src", "dir_info": {"editable": true}}'
    files = {"dougong_toy-1.0.dist-info/direct_url.json": url}
    assert "build a wheel and install that" in told(write_plugin(tmp_path, files=files))


def test_a_wheel_that_brings_a_pytest_plugin_is_refused(tmp_path: Path) -> None:
    entry = "[pytest11]\ntoy = toy_pytest\n"
    assert "brings a plugin for pytest" in told(write_plugin(tmp_path, entry_points=entry))


@pytest.mark.parametrize("name", ["toy_start.pth", "sitecustomize.py"])
def test_a_wheel_that_runs_at_every_start_of_python_is_refused(tmp_path: Path, name: str) -> None:
    found = told(write_plugin(tmp_path, files={name: "import os\n"}))
    assert f"brings {name}" in found


def test_python_without_assertions_is_refused(tmp_path: Path) -> None:
    assert "PYTHONOPTIMIZE" in told(write_plugin(tmp_path), {"PYTHONOPTIMIZE": "1"})


def test_the_plugin_sees_a_scrubbed_environment() -> None:
    given = {
        "PATH": "/bin",
        "SECRET": "1",
        "PYTHONOPTIMIZE": "1",
        "PYTHONPATH": "/evil",
        "PYTEST_ADDOPTS": "-k nothing",
        "TORCH_LOGS": "all",
        "LD_PRELOAD": "evil.so",
        "TOY_VISIBLE_DEVICES": "0",
        "ACME_HOME": "/opt/acme",
        "DOUGONG_PLATFORM": "other",
        "DOUGONG_CACHE": "/cache",
    }
    seen = executor_environment("toy", ("ACME_", "PYTHON"), given)
    assert seen == {
        "PATH": "/bin",
        "TOY_VISIBLE_DEVICES": "0",
        "ACME_HOME": "/opt/acme",
        "DOUGONG_CACHE": "/cache",
        "DOUGONG_PLUGINS": "toy",
        "PYTHONUNBUFFERED": "1",
    }


def test_the_judge_sees_less_and_loads_no_backend_of_a_vendor() -> None:
    seen = judge_environment({"PATH": "/bin", "LD_LIBRARY_PATH": "/evil", "TOY_X": "1"})
    assert seen == {"PATH": "/bin", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def test_the_judge_runs_without_site_and_without_the_environment() -> None:
    command = clean_command("a.module", ["x"])
    assert command[:3] == [sys.executable, "-I", "-S"]


def test_the_suite_brings_one_pytest_plugin_and_it_is_its_own() -> None:
    own = metadata.distribution("dougong-conformance").entry_points
    names = [one.value for one in own if one.group == "pytest11"]
    assert names in ([], ["dougong_conformance.pytest_plugin"])
