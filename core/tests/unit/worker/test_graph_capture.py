"""From wanted graphs to captured ones: memory that is counted, failures that are named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dougong.contracts import (
    ConfigError,
    DeviceLost,
    Fault,
    GraphAssignment,
    ImplementationError,
    OutOfDeviceMemory,
    PluginError,
)
from dougong.planner.mode import GRAPH_CAPTURE
from dougong.reference import ReferenceWorker
from dougong.worker import ModelRunner, StepInputs, rank_graphs
from tests.support.graph_platform import GraphPlatform, new_journal
from tests.support.graph_worker import MUCH, graph_plan, loaded_worker, running_worker
from tests.support.recorded_graphs import RecordedGraphRunner
from tests.support.reference_worker import make_worker
from tests.support.tiny_models import write_tiny_checkpoint

GRAPHS = GraphAssignment(decode=(1, 2, 4), piecewise=(8, 16), max_bytes=MUCH)
RUNNER = "tests.support.recorded_graphs.RecordedGraphRunner"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


def test_the_cache_gets_what_the_graphs_leave_and_they_take_no_more(checkpoint: Path) -> None:
    without = loaded_worker(checkpoint, GraphAssignment()).determine_available_memory()
    worker = loaded_worker(checkpoint, GRAPHS)
    left = worker.determine_available_memory()
    with running_worker(checkpoint, GRAPHS) as running:
        captured = running.collect()["graphs"]
    assert captured["sizes"] == {"decode": [1, 2, 4], "piecewise": [8, 16]}
    assert 0 < captured["num_bytes"] <= without - left <= 1.1 * captured["num_bytes"]


def test_only_the_ends_are_captured_to_measure_and_all_is_given_back(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = new_journal(monkeypatch)
    worker = loaded_worker(checkpoint, GRAPHS)
    worker.determine_available_memory()
    whole = [key for key in journal.named("capture") if key[2] == 0]
    assert whole == [("decode", 4, 0), ("decode", 1, 0), ("piecewise", 16, 0), ("piecewise", 8, 0)]
    assert sorted(journal.named("release")) == sorted(journal.named("capture"))
    assert journal.named("replay") == []
    assert not list(worker.kv_buffers())


def test_all_are_captured_from_the_largest_on_and_replayed_and_one_with_padding(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = new_journal(monkeypatch)
    with running_worker(checkpoint, GRAPHS) as worker:
        sizes = [key[1] for key in journal.named("capture") if key[2] == 0]
        assert sizes == [16, 8, 4, 2, 1]
        padded = [key for key in journal.named("capture") if key[:2] == ("piecewise", 8)]
        assert sorted(journal.named("replay")) == sorted([*journal.named("capture"), *padded])
        assert set(worker.collect()["graphs"]["hits"].values()) == {0}


def test_graphs_that_take_more_than_was_measured_are_dropped_from_the_last_on(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_worker(checkpoint, GRAPHS) as worker:
        needed = worker.collect()["graphs"]["num_bytes"]
    journal = new_journal(monkeypatch)
    with running_worker(checkpoint, replace(GRAPHS, max_bytes=needed - 1)) as worker:
        graphs = worker.collect()["graphs"]
    assert graphs["dropped"] == ["piecewise 16"]
    assert graphs["num_bytes"] < needed
    assert sorted(journal.named("capture")) == sorted(journal.named("release"))


@pytest.mark.parametrize("is_measured", [False, True])
def test_sizes_that_were_asked_for_are_refused_and_never_dropped(
    checkpoint: Path, is_measured: bool
) -> None:
    graphs = replace(GRAPHS, max_bytes=200_000, may_drop=False)
    told = r"graph_memory_bytes=200000 has no room for .*piecewise 16"
    if is_measured:
        with pytest.raises(ConfigError, match=told):
            loaded_worker(checkpoint, graphs).determine_available_memory()
    else:
        with pytest.raises(ConfigError, match=told), running_worker(checkpoint, graphs):
            pass


class Refusing(RecordedGraphRunner):
    """Fails where its ``at`` says, with what its ``error`` says."""

    at = "capture"
    error: Exception = RuntimeError("no stream is left")

    def capture(self, key: Any) -> Any:
        return self._fails() if self.at == "capture" else super().capture(key)

    @contextmanager
    def _fails(self) -> Iterator[None]:
        yield
        raise self.error

    def replay(self, key: Any) -> None:
        if self.at == "replay":
            raise self.error


class Classifying(GraphPlatform):
    """Knows a device that is lost and one that is full."""

    def classify_error(self, exc: BaseException) -> Fault | None:
        kinds = {"lost": DeviceLost, "full": OutOfDeviceMemory}
        return Fault(kinds[str(exc)], str(exc)) if str(exc) in kinds else None


@pytest.mark.parametrize(
    ("at", "error", "raised", "told"),
    [
        ("capture", RuntimeError("no stream"), ImplementationError, "the capture of .*no stream"),
        ("capture", RuntimeError("full"), ImplementationError, "the capture of .*full"),
        ("capture", RuntimeError("lost"), DeviceLost, "lost"),
        ("capture", PluginError("broken"), PluginError, "broken"),
        ("replay", RuntimeError("no"), ImplementationError, "the first replay of decode 1.*no"),
    ],
)
def test_a_failure_of_a_capture_or_a_first_replay_is_laid_at_its_door(
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
    error: Exception,
    raised: type[Exception],
    told: str,
) -> None:
    monkeypatch.setattr(RUNNER, Refusing)
    monkeypatch.setattr(Refusing, "at", at)
    monkeypatch.setattr(Refusing, "error", error)
    monkeypatch.setattr("tests.support.graph_worker.GraphPlatform", Classifying)
    monkeypatch.setattr(rank_graphs, "load_graph_runner", lambda platform: Refusing)
    with pytest.raises(raised, match=told) as caught, running_worker(checkpoint, GRAPHS):
        pass
    if isinstance(caught.value, ImplementationError):
        assert list(caught.value.failures) == [GRAPH_CAPTURE]


def test_a_runner_with_a_forward_of_its_own_is_not_captured(checkpoint: Path) -> None:
    class OwnForward(ModelRunner):
        def forward(self, inputs: StepInputs) -> torch.Tensor | None:
            return super().forward(inputs)

    class OwnWorker(ReferenceWorker):
        runner_cls = OwnForward

    worker = make_worker(checkpoint, platform=GraphPlatform(), worker_cls=OwnWorker)
    worker.init_device()
    with pytest.raises(ImplementationError, match=r"OwnForward overrides forward") as caught:
        worker.load_model(graph_plan(worker, GRAPHS))
    assert list(caught.value.failures) == [GRAPH_CAPTURE]
    worker.load_model(graph_plan(worker, GraphAssignment()))


def test_a_rank_whose_platform_names_no_runner_is_its_plugins_fault(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GraphPlatform, "get_graph_runner_cls", lambda self: None)
    worker = make_worker(checkpoint, platform=GraphPlatform())
    worker.init_device()
    worker.load_model(graph_plan(worker, GRAPHS))
    with pytest.raises(PluginError, match=r"the plan has graphs, .* names no graph runner"):
        worker.determine_available_memory()
