"""The fast gate on the simulated device: both numbers of the suite, and the margins of its limits.

One run serves all tests here; `nox -s mutants-fast` is this file.
"""

from __future__ import annotations

import os
import sys

import pytest

from dougong_conformance.kit.limits import tolerances
from dougong_conformance.selftest.gate import BASES, GateReport, first_base, run_fast_gate
from dougong_conformance.selftest.margins import Margin, margins
from dougong_conformance.selftest.mutant import all_mutants, all_witnesses

pytestmark = [pytest.mark.gate, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest) -> GateReport:
    base = first_base()
    if base != BASES[0]:
        message = f"the simulated device is not here; the gate runs on {base} and proves less"
        if os.environ.get("CI"):
            pytest.fail(message)
        sys.stderr.write(f"{message}\n")
    found = run_fast_gate(base)
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stdout.write(f"\n{found.summary()}\n")
    return found


def test_every_mutant_that_can_be_planted_here_is_killed_by_its_named_check(
    report: GateReport,
) -> None:
    lines = [
        f"{one.verdict} {one.id} {one.killer}: {one.reason[:300]}"
        for one in report.mutants
        if one.verdict not in ("killed", "elsewhere", "not here")
    ]
    assert not lines, "\n".join(lines)
    assert report.total >= 150


def test_every_witness_is_accepted(report: GateReport) -> None:
    lines = [
        f"{one.id} {end.id}: {end.reason[:300]}"
        for one in report.witnesses
        for end in one.rejected_by
    ]
    assert not lines, "\n".join(lines)
    assert report.accepted == len(all_witnesses()) >= 12


def test_nothing_of_the_catalogue_was_left_out(report: GateReport) -> None:
    assert [one.id for one in report.mutants] == list(all_mutants())


def test_only_communication_order_cannot_be_planted_on_the_simulated_device(
    report: GateReport,
) -> None:
    if report.base == "sim":
        assert [one.id for one in report.with_verdict("not here")] == ["C24"]


def judged(report: GateReport) -> list[Margin]:
    return [one for one in margins(report) if "not taking" not in one.metric]


def test_every_limit_is_twice_the_worst_legal_value(report: GateReport) -> None:
    thin = [one for one in judged(report) if one.below < 2]
    assert not thin


def test_every_limit_is_half_of_its_gentlest_mutant(report: GateReport) -> None:
    thin = [one for one in judged(report) if one.above < 2]
    assert not thin


def test_the_written_numbers_are_those_that_are_measured(report: GateReport) -> None:
    if report.base != "sim":
        pytest.skip("the numbers are those of the simulated device")
    written = {row["metric"]: row for row in tolerances()["measured"]}
    measured = {one.metric: one for one in judged(report)}
    missing = measured.keys() - written.keys()
    assert not missing, f"spec/tolerances.toml does not name {sorted(missing)}"
    for name, one in measured.items():
        row = written[name]
        assert row["limit"] == one.legal.limit, name
        assert one.legal.value <= row["legal"] * 1.25 + 0.02, name
        if one.mutant is not None:
            assert one.mutant.value >= row["mutant"] * 0.5, name
