"""Anyone can plan for each family, with nothing of the vendor's."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from dougong.testing.chip_files import chip_file_problems

CHIPS = Path(str(files("dougong_xpu"))) / "chips"


def test_every_family_has_a_file_that_says_what_the_wheel_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setenv("DOUGONG_PLUGINS", "xpu")
    assert chip_file_problems("xpu", CHIPS, tmp_path, model) == []
