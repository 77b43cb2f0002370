"""The capability files of this wheel: one per family, equal to what the wheel says now."""

from __future__ import annotations

from pathlib import Path

from dougong.testing.chip_files import chip_file_problems

import dougong_ascend

CHIPS = Path(dougong_ascend.__file__).parent / "chips"


def test_every_family_has_a_file_that_can_be_planned_with(tmp_path: Path) -> None:
    assert chip_file_problems("ascend", CHIPS, tmp_path) == []
