"""A reference worker on the platform that captures, with the graphs that a test names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dougong.contracts import GraphAssignment, RankPlan
from dougong.reference import ReferenceWorker
from tests.support.graph_platform import GraphPlatform
from tests.support.reference_worker import bring_up, make_worker, plan_for

BACKEND = "graphs/attention"
MUCH = 1 << 28


def graph_plan(
    worker: ReferenceWorker, graphs: GraphAssignment, backend: str = BACKEND
) -> RankPlan:
    """A plan for the worker's checkpoint."""
    plan = plan_for(worker, platform=worker.context.platform, backend=backend)
    return replace(plan, graphs=graphs)


def loaded_worker(
    checkpoint: Path, graphs: GraphAssignment, backend: str = BACKEND
) -> ReferenceWorker:
    """As far as the model is loaded."""
    worker = make_worker(checkpoint, platform=GraphPlatform())
    worker.init_device()
    worker.load_model(graph_plan(worker, graphs, backend))
    return worker


@contextmanager
def running_worker(
    checkpoint: Path, graphs: GraphAssignment, backend: str = BACKEND
) -> Iterator[ReferenceWorker]:
    """Ready for the first step, and shut down at the end."""
    worker = make_worker(checkpoint, platform=GraphPlatform())
    bring_up(worker, graph_plan(worker, graphs, backend))
    try:
        yield worker
    finally:
        worker.shutdown()
