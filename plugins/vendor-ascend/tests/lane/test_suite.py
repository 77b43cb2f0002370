"""The conformance suite on the vendor's torch_npu over the double, as a run with a report.

Of its profiles those that a double can carry whose work is done when a call returns: not
communicator (there is no HCCL below), not discovery and identity (whose probe and facts the double
invents), not performance, and of graph not that a replay does not wait.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dougong_conformance.ladder.run_on_double import run_on
from dougong_conformance.results import RunRecord

from tests.doubles import over_runtime
from tests.lane.shown import shows

pytestmark = [pytest.mark.lane, pytest.mark.timeout(1500)]
PROFILES = (
    *("memory", "streams", "ops", "attention", "kv", "sampling", "worker", "graph"),
    *("quantization", "engine"),
)
NOT_OF_A_DOUBLE = "not replay_does_not_wait"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(os.environ.get("LANE_OUT") or tmp_path_factory.mktemp("lane"))


@pytest.fixture(scope="module")
def record(folder: Path) -> Iterator[RunRecord]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASCEND_DOUBLE_DEVICES", "2")
        double = over_runtime("910b", num_devices=2)
        yield run_on(double, folder / "suite", profiles=PROFILES, expression=NOT_OF_A_DOUBLE)


def test_the_suite_passes_on_the_double(record: RunRecord) -> None:
    with shows("beside", "the suite on torch_npu over the double") as said:
        counts = record.footer.counts
        said.what = (
            f"suite on torch_npu 2.13.0 over the CL double, profiles {', '.join(PROFILES)}: "
            f"{counts.get('pass', 0)} cases passed"
        )
        said.details = {"counts": dict(counts)}
        bad = [
            f"{one.id} {one.outcome.value}: {one.reason}"
            for one in record.results
            if one.outcome.value not in {"pass", "not_claimed", "not_run"}
        ]
        assert bad == []
        assert record.footer.exit_code == 0


def test_graphs_of_torch_npu_are_captured_and_replayed(record: RunRecord) -> None:
    with shows("beside", "graphs of torch_npu over the double") as said:
        graphs = [one for one in record.results if one.profile == "graph"]
        passed = [one for one in graphs if one.outcome.value == "pass"]
        said.what = (
            f"AscendGraphRunner captures and replays torch_npu's own NPUGraph over the CL double: "
            f"{len(passed)} of {len(graphs)} cases of the profile graph"
        )
        assert len(passed) == len(graphs) >= 9


def test_the_report_can_be_compared_with_the_cpus(
    record: RunRecord, folder: Path, tmp_path: Path
) -> None:
    """What got worse from the CPU to the double is told; none of it is a failure."""
    assert record.footer.counts
    command = [sys.executable, "-m", "dougong_conformance"]
    cpu = tmp_path / "cpu"  # a run of another wheel, which is no evidence of this one
    run = ["run", "--plugin", "cpu", "--profile", "ops", "--profile", "engine", "--out", str(cpu)]
    subprocess.run([*command, *run], check=True, capture_output=True)
    done = subprocess.run(
        [*command, "compare", str(cpu), str(folder / "suite")],
        capture_output=True,
        text=True,
        check=False,
    )
    (folder / "compared-with-cpu.txt").write_text(done.stdout, "utf-8")
    assert done.returncode == 0
    assert "ops." in done.stdout
