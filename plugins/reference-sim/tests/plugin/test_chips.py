"""The capability files in the wheel, from which anyone plans for a family without the device."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from dougong.testing.chip_files import chip_file_problems


def test_the_files_are_what_the_wheel_says_of_its_families(tmp_path: Path) -> None:
    with as_file(files("dougong_sim") / "chips") as folder:
        assert chip_file_problems("sim", folder, tmp_path) == []
