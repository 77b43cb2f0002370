"""Steps of one model, captured and replayed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass

import torch

from dougong.attention import AttentionOutputs, AttentionStep
from dougong.contracts import GraphRunner
from dougong.execution import Executable
from dougong.lora import LoRASlots
from dougong.worker.attention_layers import AttentionLayers
from dougong.worker.graph_dispatch import StepGraph
from dougong.worker.padding_step import padding_step
from dougong.worker.piecewise import AttentionCall, PieceRecorder
from dougong.worker.step_inputs import StepInputs
from dougong.worker.step_tensors import StepTensors

MakeStep = Callable[[StepInputs], AttentionStep]
"""`ModelRunner.attention_step`."""


@dataclass(frozen=True, slots=True)
class CapturedStep:
    """A whole step, or one in pieces.

    Attributes:
        keys: Of its graphs, in the order in which they are replayed.
        calls: Attention after each graph but the last; none in a whole step.
        hidden: What the model returned, padding included.
    """

    keys: tuple[Hashable, ...]
    calls: tuple[AttentionCall, ...]
    hidden: torch.Tensor


class StepGraphs:
    """Captures steps in the memory that the input builder fills, and replays them.

    Args:
        runner: The platform's.
        model: Whose forward is captured.
        attention: Its layers.
        tensors: What every step reads.
        max_num_tokens: Rows of the largest graph.
        max_seq_len: Of any sequence.
        lora: Adapters, whose part is captured whichever tokens will use them; ``None``: none.
    """

    def __init__(
        self,
        runner: GraphRunner,
        model: Executable,
        attention: AttentionLayers,
        tensors: StepTensors,
        *,
        max_num_tokens: int,
        max_seq_len: int,
        lora: LoRASlots | None = None,
    ) -> None:
        self._runner = runner
        self._model = model
        self._attention = attention
        self._tensors = tensors
        self._max_seq_len = max_seq_len
        self._lora = lora
        self._outputs = AttentionOutputs(max_num_tokens)
        self._captured: dict[StepGraph, CapturedStep] = {}

    def rehearse(self, graph: StepGraph, make_step: MakeStep) -> None:
        """Compute once what `capture` of the same graph enqueues, so that nothing is used there
        for the first time."""
        self._forward(graph, make_step, lambda index: nullcontext())

    def capture(self, graph: StepGraph, make_step: MakeStep) -> None:
        """Make a graph, to be replayed from now on."""

        def key(index: int) -> Hashable:
            return graph.kind.value, graph.num_tokens, index

        hidden, calls = self._forward(
            graph, make_step, lambda index: self._runner.capture(key(index))
        )
        keys = tuple(key(index) for index in range(len(calls) + 1))
        self._captured[graph] = CapturedStep(keys, calls, hidden)

    def replay_padding(self, graph: StepGraph, make_step: MakeStep) -> None:
        """Replay a graph for nobody: in the first request it is not used for the first time."""
        inputs = padding_step(self._tensors, graph, self._max_seq_len)
        with self._with_lora(inputs):
            if graph.is_whole:
                self.replay(graph, make_step(inputs))
                return
            for key in self._captured[graph].keys:
                self._runner.replay(key)

    def replay(self, graph: StepGraph, step: AttentionStep) -> torch.Tensor:
        """Hidden states of a step whose inputs are in place, rows of padding at the end.

        They are valid until the next replay.
        """
        captured, runner = self._captured[graph], self._runner
        if not captured.calls:
            if graph.is_whole:
                runner.prepare_replay(step.metadata)
            runner.replay(captured.keys[0])
            return captured.hidden
        for key, call in zip(captured.keys, captured.calls, strict=False):
            runner.replay(key)
            call.run(step)
        runner.replay(captured.keys[-1])
        return captured.hidden

    def release(self, graph: StepGraph) -> None:
        """Give a graph back; the device is idle."""
        for key in self._captured.pop(graph).keys:
            self._runner.release(key)

    def release_all(self) -> None:
        """Give every graph back; the device is idle."""
        for graph in tuple(self._captured):
            self.release(graph)

    def graph_bytes(self) -> int:
        """What the graphs take on the device, as their runner says."""
        return self._runner.memory_bytes()

    def buffer_bytes(self) -> int:
        """What captured steps need on the device beside them."""
        return self._outputs.num_bytes() + self._tensors.num_wide_bytes()

    def _forward(
        self,
        graph: StepGraph,
        make_step: MakeStep,
        capture: Callable[[int], AbstractContextManager[None]],
    ) -> tuple[torch.Tensor, tuple[AttentionCall, ...]]:
        """The model's forward inside one block, or cut into several."""
        inputs = padding_step(self._tensors, graph, self._max_seq_len)
        if graph.is_whole:
            step = make_step(inputs)
            step.outputs = self._outputs
            with self._with_lora(inputs), capture(0):
                return self._model.forward(inputs.token_ids, inputs.positions, step), ()
        step = self._unread_step(graph)
        with self._with_lora(inputs), ExitStack() as stack:
            recorder = PieceRecorder(capture, stack)
            with self._attention.replaced(recorder.impl_for):
                recorder.begin()
                hidden = self._model.forward(inputs.token_ids, inputs.positions, step)
                recorder.end()
        return hidden, tuple(recorder.calls)

    def _with_lora(self, inputs: StepInputs) -> AbstractContextManager[None]:
        if self._lora is None or inputs.lora_slots is None:
            return nullcontext()
        return self._lora.captured(inputs.lora_slots)

    def _unread_step(self, graph: StepGraph) -> AttentionStep:
        """Passed through a forward in which attention computes nothing."""
        slots = [slots.to_device(graph.num_tokens) for slots in self._tensors.slots]
        return AttentionStep([None] * len(slots), slots, self._outputs)
