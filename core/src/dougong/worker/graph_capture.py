"""Graphs before the first request: rehearsed, measured, captured; what fails is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from dougong.contracts import (
    ConfigError,
    DeviceRuntime,
    GraphAssignment,
    ImplementationError,
    OutOfDeviceMemory,
    PluginError,
)
from dougong.ops.failures import blames_implementation, reason_of
from dougong.planner.mode import GRAPH_CAPTURE
from dougong.worker.graph_budget import estimate_bytes, fitting_graphs, measured_graphs
from dougong.worker.graph_dispatch import StepGraph
from dougong.worker.model_runner import ModelRunner
from dougong.worker.step_graphs import StepGraphs


@dataclass(frozen=True, slots=True)
class KeptGraphs:
    """Graphs that fit.

    Attributes:
        graphs: What is worth most comes first.
        num_bytes: What they take on the device, their buffers included.
        dropped: Those that do not fit.
    """

    graphs: tuple[StepGraph, ...]
    num_bytes: int
    dropped: tuple[StepGraph, ...] = ()


class GraphCapture:
    """Captures the graphs of a plan for one runner.

    Args:
        runner: Whose steps they are.
        assignment: Limits.
        runtime: Of the device.
        watched: Makes the block in which a kernel that fails at its first use is named.
        classified: Makes the block in which a vendor's exceptions become `DeviceError`.
    """

    def __init__(
        self,
        runner: ModelRunner,
        assignment: GraphAssignment,
        runtime: DeviceRuntime,
        *,
        watched: Callable[[], AbstractContextManager[None]],
        classified: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._runner = runner
        self._assignment = assignment
        self._runtime = runtime
        self._watched = watched
        self._classified = classified

    @property
    def _steps(self) -> StepGraphs:
        assert self._runner.graphs is not None, "made for a plan that has graphs"
        return self._runner.graphs

    def choose(self, graphs: Sequence[StepGraph]) -> KeptGraphs:
        """Capture a few, give them back, and say which of all fit.

        Args:
            graphs: What is worth most comes first.

        Raises:
            ConfigError: Sizes that the user gave do not fit.
            ImplementationError: A capture failed, or nothing fits.
        """
        some, measured, before = measured_graphs(graphs), {}, 0
        with self._runtime.inference_mode():
            self._rehearse(some)
            for graph in some:
                self._capture(graph)
                now = self._steps.graph_bytes()
                measured[graph] = max(0, now - before)
                before = now
            buffers = self._steps.buffer_bytes()
            self._steps.release_all()
        estimated = estimate_bytes(graphs, measured)
        kept = fitting_graphs(graphs, estimated, self._assignment.max_bytes - buffers)
        needed = buffers + sum(estimated.values())
        dropped = self._check_dropped(graphs, kept, needed)
        return KeptGraphs(kept, buffers + sum(estimated[graph] for graph in kept), dropped)

    def capture(self, graphs: Sequence[StepGraph]) -> KeptGraphs:
        """Capture them for good, replay each once, and let the runner use them.

        Where they take more than the budget after all, the last ones are dropped.

        Raises:
            ConfigError: Sizes that the user gave do not fit.
            ImplementationError: A capture or a first replay failed, or nothing fits.
        """
        kept = tuple(graphs)
        with self._runtime.inference_mode():
            self._rehearse(kept)
            while True:
                for graph in sorted(kept, key=lambda one: one.num_tokens, reverse=True):
                    self._capture(graph)
                num_bytes = self._steps.graph_bytes() + self._steps.buffer_bytes()
                if num_bytes <= self._assignment.max_bytes:
                    break
                self._steps.release_all()
                kept = kept[:-1]
                self._check_dropped(graphs, kept, num_bytes)
            for graph in kept:
                with self.blamed(f"the first replay of {graph}"):
                    self._steps.replay_padding(graph, self._runner.attention_step)
                    self._runtime.synchronize()
        self._runner.use_graphs(kept)
        return KeptGraphs(kept, num_bytes, tuple(one for one in graphs if one not in kept))

    def _rehearse(self, graphs: Sequence[StepGraph]) -> None:
        for graph in graphs:
            with self.blamed(f"a step as {graph} has it"), self._watched():
                self._steps.rehearse(graph, self._runner.attention_step)
                self._runtime.synchronize()

    def _capture(self, graph: StepGraph) -> None:
        with self.blamed(f"the capture of {graph}"):
            self._steps.capture(graph, self._runner.attention_step)
            self._runtime.synchronize()  # the next one writes the host's copies of its inputs

    def _check_dropped(
        self, graphs: Sequence[StepGraph], kept: Sequence[StepGraph], needed: int
    ) -> tuple[StepGraph, ...]:
        dropped = tuple(one for one in graphs if one not in kept)
        if not dropped:
            return ()
        budget = f"graph_memory_bytes={self._assignment.max_bytes}"
        named = ", ".join(map(str, dropped))
        if not self._assignment.may_drop:
            raise ConfigError(
                f"graph_sizes was asked for, and with all of them the graphs take {needed} bytes; "
                f"{budget} has no room for {named}. Ask for a larger --graph-memory-bytes, for "
                "fewer or smaller sizes, or leave --graph-sizes out."
            )
        if not kept:
            raise ImplementationError(
                {GRAPH_CAPTURE: f"no graph fits in {budget}; all of them take {needed} bytes"}
            )
        return dropped

    @contextmanager
    def blamed(self, what: str) -> Iterator[None]:
        """Inside, whatever speaks against capture is named so; a full device does, too."""
        try:
            with self._classified():
                yield
        except PluginError:
            raise
        except Exception as exc:
            if not (blames_implementation(exc) or isinstance(exc, OutOfDeviceMemory)):
                raise
            raise ImplementationError({GRAPH_CAPTURE: f"{what}: {reason_of(exc)}"}) from exc
