"""Every kernel compiles for every chip of the table, within the chip's limits (rung L4)."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from dougong_triton_kernels.targets import GENERIC, targets
from tests.lane.cases import launches
from tests.lane.children import compiled
from tests.lane.compile_stock import PLANTED
from tests.lane.conftest import Shows

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]

CHIPS = tuple(name for name in targets() if name != GENERIC)
CASES = tuple(launches(GENERIC))


@cache
def _results(chip: str) -> dict[str, Any]:
    return compiled("compile_stock", chip)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("chip", CHIPS)
def test_a_kernel_compiles_within_the_limits(chip: str, case: str, shows: Shows) -> None:
    shows("L4", f"compiled for {chip} by stock triton within its limits")
    found = _results(chip)[case]
    assert found["problems"] == []
    shows(
        "L4",
        f"on-chip memory and spills on {chip} by stock triton",
        most_bytes=found["shared"],
        limit=targets()[chip].shared_bytes,
        most_spills_where_the_table_admits_them=found["spills"],
    )
    has_matrix = chip.startswith("gfx9") or "fp32" not in case
    if "attention" in case and has_matrix:
        assert found["matrix"] > 0, "no matrix instruction in the assembly"


@pytest.mark.parametrize("chip", PLANTED)
def test_a_tile_too_big_for_the_chip_is_refused(chip: str, shows: Shows) -> None:
    """Planted."""
    shows("L4", f"planted faults of limits on {chip} found out")
    memory, registers = _results(chip)["planted"]["problems"]
    assert "bytes of on-chip memory" in memory
    assert "spills" in registers
