"""A rank's graphs, from the plan to the numbers that the status shows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any

import torch

from dougong.contracts import (
    GraphAssignment,
    GraphRunner,
    ImplementationError,
    Platform,
    PluginError,
)
from dougong.planner.mode import GRAPH_CAPTURE
from dougong.platforms.graph_runner import load_graph_runner
from dougong.worker.graph_capture import GraphCapture, KeptGraphs
from dougong.worker.graph_dispatch import graphs_of
from dougong.worker.model_runner import ModelRunner


def check_replayable(runner_cls: type[ModelRunner]) -> None:
    """Refuse a runner whose own code a replay would leave out.

    Raises:
        ImplementationError: It overrides what is captured, or what fills the captured inputs.
    """
    own = [
        name
        for name in ("prepare_inputs", "forward")
        if getattr(runner_cls, name) is not getattr(ModelRunner, name)
    ]
    if own:
        raise ImplementationError(
            {
                GRAPH_CAPTURE: f"{runner_cls.__module__}:{runner_cls.__qualname__} overrides "
                f"{' and '.join(own)}, which a replay would leave out"
            }
        )


class RankGraphs:
    """Measures and captures what the plan has; where it has nothing, nothing is done.

    Args:
        platform: Of the device.
        assignment: Of the plan.
        max_num_seqs: Sequences in a step, at most.
        watched: Makes the block in which a kernel that fails at its first use is named.
        classified: Makes the block in which a vendor's exceptions become `DeviceError`.
    """

    def __init__(
        self,
        platform: Platform,
        assignment: GraphAssignment,
        max_num_seqs: int,
        *,
        watched: Callable[[], AbstractContextManager[None]],
        classified: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._platform = platform
        self._assignment = assignment
        self._watched = watched
        self._classified = classified
        self._kept = KeptGraphs(graphs_of(assignment, max_num_seqs), 0)

    def __bool__(self) -> bool:
        """Whether the plan has any."""
        return bool(self._assignment)

    def make_runner(self, device: torch.device) -> GraphRunner | None:
        """Captures on ``device``; ``None``: nothing is captured.

        Raises:
            PluginError: The platform names none, or one that cannot be made.
        """
        if not self:
            return None
        name = self._platform.name
        runner_cls = load_graph_runner(self._platform)
        if runner_cls is None:
            raise PluginError(
                f"the plan has graphs, and in this rank platform {name!r} names no graph runner; "
                "get_graph_runner_cls() must answer the same everywhere",
                plugin=name,
            )
        return runner_cls(device)

    def measure(self, runner: ModelRunner) -> int:
        """Bytes of the graphs that fit the budget; see `GraphCapture.choose`."""
        try:
            self._kept = self._capture(runner).choose(self._kept.graphs)
        except BaseException:
            self.release(runner)
            raise
        return self._kept.num_bytes

    def capture(self, runner: ModelRunner) -> None:
        """Capture those that fit; see `GraphCapture.capture`."""
        before = self._kept
        captured = self._capture(runner).capture(before.graphs)
        self._kept = replace(captured, dropped=(*captured.dropped, *before.dropped))

    def run_padded(self, runner: ModelRunner, run: Callable[[int], None]) -> None:
        """One step in pieces with a row of padding: attention meets it here, not in a request.

        Args:
            runner: Uses the graphs that were captured.
            run: Runs a step of so many tokens.

        Raises:
            ImplementationError: The step failed.
        """
        sizes = sorted(graph.num_tokens for graph in self._kept.graphs if not graph.is_whole)
        most = next((size - 1 for size in sizes if size > 1 and size - 1 not in sizes), 0)
        if most:
            with self._capture(runner).blamed(f"a step of {most} tokens and one row of padding"):
                run(most)

    def release(self, runner: ModelRunner) -> None:
        """Give them back, on a device that may be past all help."""
        if runner.graphs is not None:
            with suppress(Exception):  # a vendor's code, on its way out
                runner.graphs.release_all()

    def numbers(self, runner: ModelRunner) -> dict[str, Any]:
        """Plain data: what is captured, its size, what was dropped, and counters of steps."""
        kept, dispatch = self._kept, runner.dispatch
        if dispatch is None:
            return {}
        sizes = {
            kind.value: [graph.num_tokens for graph in kept.graphs if graph.kind is kind]
            for kind in dict.fromkeys(graph.kind for graph in kept.graphs)
        }
        return {
            "sizes": sizes,
            "num_bytes": kept.num_bytes,
            "max_bytes": self._assignment.max_bytes,
            "dropped": [str(graph) for graph in kept.dropped],
            **dispatch.counters.as_dict(),
        }

    def _capture(self, runner: ModelRunner) -> GraphCapture:
        return GraphCapture(
            runner,
            self._assignment,
            self._platform.runtime,
            watched=self._watched,
            classified=self._classified,
        )
