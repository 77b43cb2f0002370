"""What the lane's tests showed, written down as evidence: exactly their outcomes, grouped."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_outcomes: dict[tuple[str, str], list[tuple[bool, dict[str, Any]]]] = defaultdict(list)
Shows = Callable[..., None]


@pytest.fixture(scope="session", autouse=True)
def interpreted() -> Iterator[None]:
    """Kernels of this process run in triton's interpreter; set before anything imports triton."""
    os.environ["TRITON_INTERPRET"] = "1"
    yield
    del os.environ["TRITON_INTERPRET"]


@pytest.fixture
def shows(record_property: Callable[[str, object], None]) -> Shows:
    """Says which rung a test speaks for, in which sentence; numbers go along."""

    def note(rung: str, subject: str, **numbers: float) -> None:
        record_property("shows", (rung, subject, numbers))

    return note


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test that fails before it says anything speaks against its file's rung."""
    if report.when != "call" and not report.failed:
        return
    said = [value for name, value in report.user_properties if name == "shows"]
    if report.failed and not said:
        rung = "L5" if "test_numerics" in report.nodeid else "L4"
        said = [(rung, "tests that ended before they showed anything", {})]
    for one in said:
        if isinstance(one, tuple):
            rung, subject, numbers = one
            _outcomes[rung, subject].append((report.passed, numbers))


def pytest_sessionfinish() -> None:
    """Where the lane asks for it."""
    folder = os.environ.get("LANE_OUT")
    if not folder or not _outcomes:
        return
    from dougong_conformance.ladder import evidence

    for (rung, subject), outcomes in sorted(_outcomes.items()):
        passed = sum(has_passed for has_passed, _ in outcomes)
        numbers: dict[str, list[float]] = defaultdict(list)
        for _, given in outcomes:
            for name, value in given.items():
                numbers[name].append(value)
        worst = {name: round(max(values), 4) for name, values in numbers.items()}
        said = "".join(f"; {name.replace('_', ' ')} {value:g}" for name, value in worst.items())
        evidence.write(
            Path(folder),
            rung,
            f"{subject}: {passed} of {len(outcomes)} tests passed{said}",
            "nox -s lane_triton",
            passed == len(outcomes),
            "dougong-triton-kernels",
            details=worst,
        )
