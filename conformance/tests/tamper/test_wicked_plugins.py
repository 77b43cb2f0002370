"""Whole runs against a plugin that crashes, hangs, chatters and patches."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dougong_conformance.outcomes import Outcome
from dougong_conformance.results import CaseResult, RunRecord
from dougong_conformance.runner.limits import Limits
from dougong_conformance.runner.processes import with_mark
from dougong_conformance.runner.run import RunRequest, run
from dougong_conformance.runner.supervisor import EVENTS_FILE
from tests.tamper.toys import write_plugin, write_suite

SHORT = Limits(case_min_s=2.0, term_s=2.0, log_max_bytes=1 << 20)
WICKED = {
    "exit": (Outcome.CRASH, "exited with code 0"),
    "segfault": (Outcome.CRASH, "SIGSEGV"),
    "gil": (Outcome.TIMEOUT, "no answer to toy.misbehave"),
    "flood": (Outcome.PASS, ""),
    "chatter": (Outcome.PASS, ""),
    "forks": (Outcome.CRASH, "exited with code 3"),
    "fork and return": (Outcome.PASS, ""),
    "forge": (Outcome.CRASH, "what is no answer"),
    "raise": (Outcome.FAIL, "raised RuntimeError: as told"),
    "abort": (Outcome.CRASH, "SIGABRT"),
    "sys.exit": (Outcome.CRASH, "exited with code 0"),
}
PATCHES = """
import torch

_softmax = torch.softmax
torch.softmax = lambda x, dim: _softmax(x * 1.5, dim)
torch.Tensor.double = lambda self: self.float() * 0
torch.Tensor.__sub__ = lambda self, other: self * 0
import pytest

pytest.raises = lambda kind: 1
"""


def request(folder: Path, kinds: tuple[str, ...] = (), **fields: object) -> RunRequest:
    """A run of the toy, installed in a folder of its own."""
    plugin = fields.pop("plugin", None) or write_plugin(folder / "site")
    made = RunRequest(
        plugin=plugin,  # type: ignore[arg-type]  # either is one
        mode="selftest",
        folder=folder / "out",
        extension=write_suite(folder / "suite", kinds, ids=fields.pop("ids", None)),  # type: ignore[arg-type]  # as named
        import_path=str(folder / "site"),
        limits=SHORT,
    )
    return replace(made, **fields)  # type: ignore[arg-type]  # fields of the request


def by_id(record: RunRecord) -> dict[str, CaseResult]:
    return {one.id: one for one in record.results}


@pytest.fixture(scope="module")
def wicked(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunRecord, Path]:
    """One run in which a plugin does everything that is wicked, one thing after the other."""
    folder = tmp_path_factory.mktemp("wicked")
    ids = ("discovery.quiet", "ops.softmax", "worker.after", "worker.fresh", "communicator.ranks")
    return run(request(folder, tuple(WICKED), ids=ids)), folder


@pytest.mark.parametrize("kind", WICKED)
def test_a_wicked_call_costs_its_own_case_only(wicked: tuple[RunRecord, Path], kind: str) -> None:
    result = by_id(wicked[0])[f"streams.wicked{list(WICKED).index(kind)}"]
    outcome, reason = WICKED[kind]
    assert result.outcome is outcome
    assert reason in result.reason


def test_every_other_case_still_gets_its_result(wicked: tuple[RunRecord, Path]) -> None:
    record, _ = wicked
    calm = [one for one in record.results if "wicked" not in one.id]
    assert [one.outcome for one in calm] == [Outcome.PASS] * 5
    assert not record.footer.missing
    assert not record.footer.suite_problems
    assert record.footer.exit_code == 1
    assert record.footer.profiles["worker"].verdict == "passed"


def test_stacks_and_last_words_are_kept(wicked: tuple[RunRecord, Path]) -> None:
    record, folder = wicked
    results = by_id(record)
    assert "misbehave" in results["streams.wicked2"].reason  # where it held the lock
    assert (folder / "out" / results["streams.wicked1"].log).is_file()
    assert (folder / "out" / EVENTS_FILE).read_text().splitlines()[-1] == '{"event": "footer"}'


def test_no_process_outlives_the_run(wicked: tuple[RunRecord, Path]) -> None:
    assert with_mark(str(wicked[1])) == []


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """A plugin that patches torch and pytest, edited after it was installed, is certified."""
    folder = tmp_path_factory.mktemp("patched")
    plugin = write_plugin(folder / "site", platform=PATCHES)
    with (folder / "site" / "toy_plugin.py").open("a") as file:
        file.write("# edited\n")
    ids = ("ops.softmax", "ops.coin", "worker.after")
    given = {**os.environ, "PYTHONOPTIMIZE": "1"}
    return run(request(folder, plugin=plugin, mode="certify", ids=ids, environment=given))


def test_a_plugin_that_patches_torch_is_judged_by_an_unpatched_one(patched: RunRecord) -> None:
    result = by_id(patched)["ops.softmax[float32]"]
    assert result.outcome is Outcome.FAIL
    assert result.attempts == (Outcome.FAIL,) * 3
    assert by_id(patched)["worker.after"].outcome is Outcome.PASS


def test_patches_of_torch_and_pytest_are_printed(patched: RunRecord) -> None:
    told = " ".join(patched.header.patches)
    for name in ("torch.softmax", "torch.Tensor.double", "torch.Tensor.__sub__", "pytest.raises"):
        assert name in told


def test_an_edited_wheel_and_switched_off_assertions_are_tampering(patched: RunRecord) -> None:
    told = " ".join(patched.header.tampering)
    assert "toy_plugin.py" in told
    assert "PYTHONOPTIMIZE" in told
    assert "PYTHONOPTIMIZE" not in patched.header.environment
    assert patched.footer.exit_code == 7
    assert patched.footer.core != "conformant"


def test_another_outcome_when_repeated_is_a_failure(patched: RunRecord) -> None:
    result = by_id(patched)["ops.coin"]
    assert result.outcome is Outcome.FAIL
    assert result.attempts == (Outcome.PASS, Outcome.FAIL, Outcome.PASS)
    assert "flaky: pass, fail, pass in 3 runs" in result.reason


@pytest.mark.extra
def test_a_lost_device_ends_the_run_without_blaming_others(tmp_path: Path) -> None:
    broken = tmp_path / "is_broken"
    platform = f"""
import os


def _check():
    if os.path.exists({str(broken)!r}):
        raise RuntimeError("no device")
"""
    plugin = write_plugin(tmp_path / "site", platform=platform, breaks=True)
    given = {**os.environ, "TOY_BROKEN": str(broken)}
    record = run(request(tmp_path, ("break device",), plugin=plugin, environment=given))
    results = by_id(record)
    assert results["streams.wicked0"].outcome is Outcome.DEVICE_LOST
    assert results["ops.softmax[float32]"].outcome is Outcome.NOT_RUN
    assert "the device was lost at streams.wicked0" in results["worker.after"].reason
    assert record.footer.exit_code == 1


@pytest.mark.extra
def test_a_search_tells_what_it_finds_and_fails_nothing(tmp_path: Path) -> None:
    asked = request(tmp_path, ids=("ops.drawn",), search_s=2.0)
    with Path(asked.extension, "conformance_extension_checks.py").open("a") as file:
        file.write(
            "\n\n@check('ops.drawn', per_dtype=True)\ndef drawn(subject, judge, dtype):\n"
            "    from dougong_conformance.kit import generate\n"
            "    judge.require(not generate._hidden_seed, 'another seed')\n"
        )
    record = run(asked)
    (result,) = record.results
    assert result.outcome is Outcome.PASS
    assert record.footer.exit_code == 0
    assert "it ends as fail: another seed" in result.warnings[0]
    assert int(record.header.seeds["further seeds searched"]) > 0


@pytest.mark.extra
def test_a_judge_that_dies_is_a_fault_of_the_suite(tmp_path: Path) -> None:
    asked = request(tmp_path, ids=("discovery.dies", "worker.after"))
    with Path(asked.extension, "conformance_extension_checks.py").open("a") as file:
        file.write(
            "\n\n@check('discovery.dies')\ndef dies(subject, judge):\n"
            "    import os\n    os.kill(os.getpid(), 9)\n"
        )
    record = run(asked)
    assert record.footer.exit_code == 4
    assert "SIGKILL at discovery.dies" in record.footer.exit_reason
    assert record.footer.missing == ("discovery.dies", "worker.after")
