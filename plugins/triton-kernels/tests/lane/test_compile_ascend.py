"""Kernels go through the vendor's open compiler up to machine code, which needs the toolkit."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.lane.cases import launches
from tests.lane.children import compiled
from tests.lane.compile_ascend import PLANTED
from tests.lane.conftest import Shows
from tools.vendor_environments import python

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]

CASES = tuple(launches("generic"))


@cache
def _results() -> dict[str, Any]:
    return compiled("compile_ascend", *CASES, PLANTED, python=python("ascend"))


def complaints(said: list[str]) -> list[str]:
    """What the compiler says beside that the toolkit's last step is not there."""
    return [line for line in said if "hivmc" not in line and "Failed to run BiShengIR" not in line]


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_reaches_the_last_step(case: str, shows: Shows) -> None:
    shows("beside", "Ascend 910B2 up to hivmc by bishengir 1.2.0")
    found = _results()[case]
    assert found["error"] == ""
    assert complaints(found["said"]) == []
    assert any("hivmc run fails" in line for line in found["said"]), "it did not get that far"


def test_a_row_larger_than_the_unified_buffer_is_found_out(shows: Shows) -> None:
    """Planted: a norm over 131072 elements at a time."""
    shows("beside", "planted overflow of Ascend's unified buffer found out")
    found = _results()[PLANTED]
    assert any("ub overflow" in line.lower() for line in complaints(found["said"])), found
