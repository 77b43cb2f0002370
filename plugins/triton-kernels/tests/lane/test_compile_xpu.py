"""Every kernel compiles to SPIR-V with Intel's triton (beside rung L4: no machine code is made)."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.lane.cases import launches
from tests.lane.children import compiled
from tests.lane.compile_xpu import SHARED_BYTES
from tests.lane.conftest import Shows
from tools.vendor_environments import python

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]

CASES = tuple(launches("xpu"))


@cache
def _results() -> dict[str, Any]:
    return compiled("compile_xpu", *CASES, python=python("xpu"))


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_compiles_to_spirv(case: str, shows: Shows) -> None:
    shows("beside", "SPIR-V for Xe by triton-xpu 3.3.0b1")
    found = _results()[case]
    assert found["error"] == ""
    assert found["spv"] > 0
    assert found["shared"] <= SHARED_BYTES
    if "attention" in case and "fp32" not in case:
        assert found["matrix"] > 0, "no matrix instruction"
