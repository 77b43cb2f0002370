"""Evidence of a lane's test is written whether the test held or not, and outside a lane never."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.shown import shows


def _written(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.rglob("*.json"))]


def test_what_held_is_written_with_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANE_OUT", str(tmp_path))
    with shows("L0", "some calls bind", "xpu") as said:
        said.what = "17 calls bind to the schemas"
        said.details["calls"] = 17
    (written,) = _written(tmp_path)
    assert (written["result"], written["what"]) == ("passed", "17 calls bind to the schemas")
    assert written["command"] == "nox -s lane_xpu"
    assert written["details"] == {"calls": 17}


def test_what_did_not_hold_is_written_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANE_OUT", str(tmp_path))
    with pytest.raises(AssertionError), shows("L1", "every call is taken", "xpu"):
        raise AssertionError
    assert [one["result"] for one in _written(tmp_path)] == ["failed"]


def test_outside_a_lane_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANE_OUT", raising=False)
    monkeypatch.chdir(tmp_path)
    with shows("L0", "some calls bind", "xpu"):
        pass
    assert _written(tmp_path) == []
