"""One test per case; which there are depends on the plugin (see ``pytest_plugin``)."""

from __future__ import annotations

from dougong_conformance.check import Case
from dougong_conformance.pytest_plugin import DeveloperRun


def test_case(conformance_case: Case, conformance_run: DeveloperRun) -> None:
    """Run the check; what it raises is what fails the test."""
    conformance_run.run(conformance_case)
