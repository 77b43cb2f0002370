"""The examples of ``docs/ladder.md`` run, one after the other, as the page shows them."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dougong_conformance.ladder import own_process
from tests.unit.ladder import acme

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "ladder.md").read_text("utf-8")


def run_page(folder: str) -> dict[str, Any]:
    """In a process of its own, since what a double registers stays."""
    place = Path(folder)
    with acme.installed(place):
        os.chdir(place)
        known: dict[str, Any] = {"out": place / "out"}
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(compile(block, "docs/ladder.md", "exec"), known)
        return {
            "drift": known["drift"],
            "passed": [end.id for end in known["ends"]],
            "evidence": [path.name for path in (place / "out" / "evidence").iterdir()],
        }


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    told: dict[str, Any] = own_process.call(run_page, str(tmp_path_factory.mktemp("page")))
    return told


def test_every_example_runs(told: dict[str, Any]) -> None:
    assert told["passed"] == ["ops.rms_norm[float32]"]
    assert [name[:2] for name in told["evidence"]] == ["l4"]
    assert "acme::rms_norm is gone" in told["drift"]


def test_every_module_of_the_room_is_on_the_page() -> None:
    room = ROOT / "conformance" / "src" / "dougong_conformance" / "ladder"
    inner = {"__init__", "call_sites", "device_guards"}
    for module in sorted({path.stem for path in room.glob("*.py")} - inner):
        assert f"`{module}`" in PAGE, module


def test_every_lane_of_the_page_is_a_session_and_every_lane_file_has_its_form() -> None:
    sessions = set(re.findall(r"^def (lane_\w+)", (ROOT / "noxfile.py").read_text(), re.MULTILINE))
    sessions -= {"lane_"}
    (command,) = re.findall(r"nox -s (lane_.*)", PAGE.split("## Lanes")[1])
    assert set(command.split()) == sessions
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    texts = [example, *(one.read_text() for one in sorted(ROOT.glob("plugins/*/lane.toml")))]
    for text in texts:
        for lane in tomllib.loads(text)["lane"].values():
            assert lane.keys() <= {"tests", "prepare", "environment", "install"}
            assert lane["tests"]
            for step in lane["install"]:
                assert step.keys() <= {"packages", "args", "from_vendor"}
                assert step["packages"]
