"""The wheel as a user has it: run by `nox -s extra` where the source tree is out of reach."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import dougong

SCRIPT = Path(sys.executable).with_name("dougong")


def _dougong(*arguments: str, timeout_s: float = 300) -> str:
    done = subprocess.run(
        [str(SCRIPT), *arguments], capture_output=True, text=True, check=False, timeout=timeout_s
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _files() -> set[str]:
    return {str(path) for path in metadata.files("dougong") or []}


def test_what_is_imported_is_the_wheel() -> None:
    assert "site-packages" in Path(dougong.__file__).parts
    assert metadata.version("dougong") == dougong.__version__


def test_the_wheel_carries_its_types_and_its_licence() -> None:
    assert "dougong/py.typed" in _files()
    assert any(name.endswith("licenses/LICENSE") for name in _files())


def test_the_wheel_carries_no_tests() -> None:
    assert not [name for name in _files() if name.startswith("tests/")]


def test_the_wheel_carries_the_status_page() -> None:
    names = ("index.html", "page.css", "page.js", "mark.svg")
    assert {f"dougong/server/page/{name}" for name in names} <= _files()


def test_the_wheel_is_pure_python() -> None:
    wheel = metadata.distribution("dougong").read_text("WHEEL") or ""
    assert "Root-Is-Purelib: true" in wheel


def test_the_cpu_platform_comes_in_through_the_entry_point() -> None:
    found = metadata.entry_points(group="dougong.platform_plugins", name="cpu")
    assert [entry.dist.name for entry in found if entry.dist] == ["dougong"]


def test_every_command_explains_itself() -> None:
    for command in ("generate", "bench", "doctor", "plugin"):
        assert command in _dougong("--help")
        assert "--help" in _dougong(command, "--help")


def test_the_doctor_finds_the_cpu() -> None:
    assert "cpu" in json.dumps(json.loads(_dougong("doctor", "--json")))


def test_the_wheel_carries_what_a_plugin_is_written_from(tmp_path: Path) -> None:
    _dougong("plugin", "new", "acme", "--folder", str(tmp_path))
    assert (tmp_path / "dougong-acme" / "src" / "dougong_acme" / "platform.py").exists()


def test_a_model_answers() -> None:
    answer = _dougong(
        "generate", "--model", "demo", "--chat", "Name one colour.", "--max-tokens", "4"
    )
    assert answer.strip()


@pytest.fixture
def acme(tmp_path: Path) -> Iterator[None]:
    """A new plugin, installed as a stranger's wheel is."""
    _dougong("plugin", "new", "acme", "--folder", str(tmp_path))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    project = str(tmp_path / "dougong-acme")
    subprocess.run([*pip, "install", "--no-deps", project], check=True)
    yield
    subprocess.run([*pip, "uninstall", "-y", "dougong-acme"], check=True)


def test_a_new_plugin_is_found_tried_and_runs_a_model(acme: None, tmp_path: Path) -> None:
    """As the plugin guide has it, one command after the other."""
    assert "all_reduce" in _dougong("doctor", "--platform", "acme")
    assert "acme/AcmeAddRMSNorm" in _dougong("explain", "demo", "--platform", "acme")
    asked = ("generate", "--model", "demo", "The capital of France is", "--max-tokens", "8")
    plain, own = (
        json.loads(_dougong(*asked, "--json", "--dtype", "float32", "--platform", name))
        for name in ("cpu", "acme")
    )
    assert own["token_ids"] == plain["token_ids"]
    tests = str(tmp_path / "dougong-acme" / "tests")
    subprocess.run([sys.executable, "-m", "pytest", "-q", tests], check=True)
