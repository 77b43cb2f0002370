"""Captured steps of a whole worker: what they write, what they read, what becomes of padding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dougong.contracts import GraphAssignment
from dougong.messages import SchedulerOutput
from dougong.reference import ReferenceWorker
from tests.support.graph_platform import new_journal
from tests.support.graph_worker import BACKEND, MUCH, running_worker
from tests.support.reference_worker import go_on, start
from tests.support.tiny_models import write_tiny_checkpoint

ASSIGNMENTS = {
    "piecewise": GraphAssignment(piecewise=(8, 16), max_bytes=MUCH),
    "decode": GraphAssignment(decode=(4,), piecewise=(16,), max_bytes=MUCH),
    "full": GraphAssignment(decode=(4,), full=(16,), max_bytes=MUCH),
}
PROMPTS = {"a": [5, 90, 17, 33], "b": [9, 8], "c": [200]}
BLOCKS = {"a": 3, "b": 6, "c": 9}
UNTOUCHED = 777.0


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


def the_steps() -> list[SchedulerOutput]:
    """Seven tokens of three prompts, then a decode step of three."""
    first = start(0, *((name, PROMPTS[name], [BLOCKS[name]], len(PROMPTS[name])) for name in "abc"))
    return [first, go_on(1, a=1, b=1, c=1)]


def run(worker: ReferenceWorker) -> list[dict[str, list[int]]]:
    outputs = map(worker.execute_model, the_steps())
    return [dict(zip(one.req_ids, one.sampled_token_ids, strict=True)) for one in outputs]


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> list[dict[str, list[int]]]:
    with running_worker(checkpoint, GraphAssignment()) as worker:
        return run(worker)


@pytest.mark.parametrize(
    ("kind", "backend"),
    [*((kind, BACKEND) for kind in ASSIGNMENTS), ("piecewise", "reference/torch")],
)
def test_padding_writes_no_slot_of_the_cache(checkpoint: Path, kind: str, backend: str) -> None:
    with running_worker(checkpoint, ASSIGNMENTS[kind], backend) as worker:
        for buffer in worker.kv_buffers():
            buffer.fill_(UNTOUCHED)
        run(worker)
        assert worker.collect()["graphs"]["num_padding_tokens"] > 0
        mine = {(BLOCKS[name], at) for name in "abc" for at in range(len(PROMPTS[name]) + 1)}
        for buffer in worker.kv_buffers():
            written = (buffer != UNTOUCHED).flatten(2).any(-1).nonzero().tolist()
            assert set(map(tuple, written)) == mine


@pytest.mark.parametrize("kind", ASSIGNMENTS)
def test_nobody_reads_a_row_of_padding(
    checkpoint: Path, expected: list[dict[str, list[int]]], kind: str
) -> None:
    with running_worker(checkpoint, ASSIGNMENTS[kind]) as worker:
        assert worker._runner is not None
        graphs = worker._runner.graphs
        assert graphs is not None
        for buffer in graphs._outputs._buffers.values():
            with torch.inference_mode():
                buffer.fill_(torch.nan)
        assert run(worker) == expected


def test_a_capture_in_pieces_calls_no_attention_and_each_replay_calls_all(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = new_journal(monkeypatch)
    with running_worker(checkpoint, GraphAssignment(piecewise=(8,), max_bytes=MUCH)) as worker:
        keys = [("piecewise", 8, index) for index in range(3)]  # two layers
        assert journal.named("capture") == keys
        journal.entries.clear()
        worker.execute_model(the_steps()[0])
        assert journal.entries == [("replay", key) for key in keys]


def test_what_a_graph_returns_stays_where_it_is(checkpoint: Path) -> None:
    with running_worker(checkpoint, ASSIGNMENTS["decode"]) as worker:
        assert worker._runner is not None
        graphs = worker._runner.graphs
        assert graphs is not None
        before = [one.hidden.data_ptr() for one in graphs._captured.values()]
        run(worker)
        assert [one.hidden.data_ptr() for one in graphs._captured.values()] == before
        graphs.release_all()
        assert graphs.graph_bytes() == 0
