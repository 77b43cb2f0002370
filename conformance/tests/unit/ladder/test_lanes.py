"""The lanes of ``noxfile.py``: what cannot be had is skipped loudly, what fails fails."""

from __future__ import annotations

import json
import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).parents[4]


class Skipped(Exception):
    """The session ended as skipped."""


class Ended(Exception):
    """The session ended as failed."""


class Session:
    """Of nox, as far as a lane uses it."""

    posargs: tuple[str, ...] = ()

    def __init__(self, failed_install: type[Exception]) -> None:
        self.warned: list[str] = []
        self.installed: list[tuple[str, ...]] = []
        self.bin = str(Path(sys.executable).parent)
        self.virtualenv = SimpleNamespace(location=str(Path(sys.executable).parents[1]))
        self._failed_install = failed_install

    def install(self, *arguments: str) -> None:
        self.installed.append(arguments)
        if "not-to-be-had" in arguments:
            raise self._failed_install("no such wheel")

    def log(self, text: str) -> None:
        """Told to nobody."""

    def warn(self, text: str) -> None:
        self.warned.append(text)

    def skip(self, reason: str) -> NoReturn:
        raise Skipped(reason)

    def error(self, reason: str) -> NoReturn:
        raise Ended(reason)


@cache
def _read() -> Any:
    """Once: nox keeps a list of sessions per process."""
    spec = spec_from_file_location("noxfile_of_lanes", ROOT / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def noxfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The file, on a package of the test's."""
    module = _read()
    package = tmp_path / "acme"
    (package / "tools").mkdir(parents=True)
    (package / "tests").mkdir()
    (package / "pyproject.toml").write_text('[project]\nname = "dougong-sim"\n')
    (package / "tests" / "test_a.py").write_text(
        "import pytest\n@pytest.mark.lane\ndef test_a():\n    pass\n"
    )
    (package / "pytest.ini").write_text("[pytest]\nmarkers =\n  lane: of this test\n")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "LANES", {"acme": package})
    monkeypatch.setattr(module, "_with_plugins", lambda session: sys.executable)
    return module


def lane(noxfile: Any, text: str) -> Session:
    head = '[lane.acme]\ntests = ["tests"]\n'
    (noxfile.LANES["acme"] / "lane.toml").write_text(head + text)
    session = Session(noxfile.nox.command.CommandFailed)
    try:
        noxfile._lane(session, "acme")
    except Exception as error:
        error.args = (*error.args, session)
        raise
    return session


def told(noxfile: Any) -> dict[str, Any]:
    text = (noxfile.ROOT / ".nox" / "lanes" / "acme" / "report.json").read_text()
    content: dict[str, Any] = json.loads(text)
    return content


INSTALL = '[[lane.acme.install]]\npackages = ["{package}", "{torch}"]\n'
NOT_TO_BE_HAD = '[[lane.acme.install]]\nfrom_vendor = true\npackages = ["not-to-be-had"]\n'


def prepare(noxfile: Any, code: int) -> str:
    tools = noxfile.LANES["acme"] / "tools"
    (tools / "__init__.py").write_text("")
    (tools / "prepare.py").write_text(f"raise SystemExit({code})\n")
    return 'prepare = "tools.prepare"\n'


def test_a_vendors_wheel_that_cannot_be_had_is_a_loud_skip(noxfile: Any) -> None:
    with pytest.raises(Skipped, match="pip could not have not-to-be-had") as caught:
        lane(noxfile, INSTALL + NOT_TO_BE_HAD)
    session = caught.value.args[-1]
    assert any("LANE ACME DID NOT RUN" in text for text in session.warned)
    assert told(noxfile)["verdict"] == "NOT RUN: pip could not have not-to-be-had"
    package = str(noxfile.LANES["acme"])
    assert session.installed[0] == ("--quiet", "-e", package, noxfile.TORCH)


def test_anything_else_that_cannot_be_installed_is_a_failure(noxfile: Any) -> None:
    with pytest.raises(noxfile.nox.command.CommandFailed):
        lane(noxfile, NOT_TO_BE_HAD.replace("true", "false"))


def test_a_preparation_without_what_it_needs_is_a_skip_and_one_that_breaks_a_failure(
    noxfile: Any,
) -> None:
    with pytest.raises(Skipped, match="could not have what it needs"):
        lane(noxfile, prepare(noxfile, 75) + INSTALL)
    with pytest.raises(Ended, match="ended with 1"):
        lane(noxfile, prepare(noxfile, 1) + INSTALL)


def test_tests_that_pass_and_show_nothing_are_not_green(noxfile: Any) -> None:
    with pytest.raises(Ended, match="lane acme failed"):
        lane(noxfile, INSTALL)
    assert told(noxfile)["verdict"] == "no rung; tests passed"
