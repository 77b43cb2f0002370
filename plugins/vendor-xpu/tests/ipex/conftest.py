"""Intel's extension, loaded once; what the kernels give is held against the suite's law."""

from __future__ import annotations

import pytest
import torch
from dougong_conformance.kit.limits import law
from dougong_conformance.kit.metric import Expected, normalised_error, summarise

from dougong_xpu import ipex_library

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.fixture(scope="session", autouse=True)
def extension() -> None:
    """Bound to the names through which the plugin calls it."""
    problem = ipex_library.load()
    assert problem == ""


def error_of(actual: torch.Tensor, expected: Expected) -> float:
    """Largest error by the law of the suite, checked against its limit.

    Raises:
        AssertionError: It is beyond the limit, or shape or dtype differ.
    """
    assert actual.shape == expected.value.shape
    assert actual.dtype is expected.dtype
    choices = (expected, *expected.alternatives)
    found = min(summarise(normalised_error(actual, one)).max for one in choices)
    assert found <= law().max_error, f"normalised error {found:.3g}, allowed {law().max_error}"
    return found
