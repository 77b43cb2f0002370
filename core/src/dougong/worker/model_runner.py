"""One step on the device: inputs, forward, sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt
import torch

from dougong.attention import AttentionStep
from dougong.contracts import (
    AttentionMetadataBuilder,
    DeviceRuntime,
    Event,
    GrammarMask,
    ModelRunnerOutput,
    PluginError,
    SchedulerOutput,
    TokenLogprobs,
)
from dougong.execution import Executable
from dougong.lora import LoRASlots
from dougong.models.encoder_model import EncoderModel
from dougong.sampling import SampledTokens, Sampler, TopLogprobs
from dougong.sampling.inputs import GrammarRows
from dougong.sampling.top_logprobs import joined
from dougong.worker.graph_dispatch import GraphDispatch, StepGraph
from dougong.worker.input_batch import NO_LORA, InputBatch
from dougong.worker.pooler import Pooler
from dougong.worker.prompt_rows import PromptTokens
from dougong.worker.reports import prompt_logprobs, sampled_logprobs
from dougong.worker.step_graphs import StepGraphs
from dougong.worker.step_inputs import StepInputBuilder, StepInputs

_POLL_S = 0.0005
_FEWEST_ROWS = 16  # of logits at a time, where a step has few sequences


@dataclass(slots=True)
class StepTimers:
    """Seconds on this rank's host, added up over steps.

    On a device that runs behind the host these are times to enqueue.
    """

    num_steps: int = 0
    prepare_s: float = 0.0
    forward_s: float = 0.0
    sample_s: float = 0.0

    def as_dict(self) -> dict[str, float]:
        """By name."""
        return asdict(self)


class ModelStep:
    """A step in flight, with the host buffers its results arrive in.

    Attributes:
        grammar: Masks of requests that are sampled; set before it is.
    """

    def __init__(
        self, runner: ModelRunner, step_id: int, inputs: StepInputs, logits: torch.Tensor | None
    ) -> None:
        self.step_id = step_id
        self.inputs = inputs
        self.logits = logits
        self._runner = runner
        self._output: ModelRunnerOutput | None = None
        self.sampled: SampledTokens | None = None
        self.grammar: GrammarMask | None = None
        self.event: Event | None = None

    def result(self, timeout_s: float | None = None) -> ModelRunnerOutput:
        """Wait for the step's tokens; the second call returns the same object.

        Raises:
            DeviceError: Classified; also a fault of an earlier kernel that surfaces only here.
            TimeoutError: ``timeout_s`` passed; the step goes on, and may be asked again.
        """
        if self._output is None:
            if timeout_s is not None:
                self._wait(timeout_s)
            self._output = self._runner.finish(self)
        return self._output

    def _wait(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self.event is not None and not self.event.query():
            if time.monotonic() >= deadline:
                raise TimeoutError(f"step {self.step_id} has not ended after {timeout_s} s")
            time.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """What a worker hands its runner. A subclass with a constructor of its own passes it on.

    Attributes:
        model: Built, loaded and bound; the modules, or straight-line code over them.
        sampler: Bound.
        batch: The rows.
        inputs: Builds a step's tensors from them.
        builders: Metadata builder per KV cache group; others may stand in their place for a while.
        runtime: The device's.
        classified: Makes the block in which a step's late errors are named; takes the step's id.
        graphs: Captures and replays steps; ``None``: the plan has no graphs.
        lora: Adapters; ``None``: the plan has none.
        pooler: Makes vectors; ``None``: tokens are sampled.
    """

    model: Executable | EncoderModel
    sampler: Sampler
    batch: InputBatch
    inputs: StepInputBuilder
    builders: list[AttentionMetadataBuilder]
    runtime: DeviceRuntime
    classified: Callable[[int | None], AbstractContextManager[None]]
    graphs: StepGraphs | None = None
    lora: LoRASlots | None = None
    pooler: Pooler | None = None


class ModelRunner:
    """Runs steps of one model on one device, in three parts, each of which a vendor may override:
    `prepare_inputs`, `forward` and `sample`. With one of the first two overridden nothing is
    captured, since a replay would leave the vendor's code out.

    Args:
        parts: Passed on unread.

    Attributes:
        model: As in `RunnerParts`; an encoder gives no logits, and is asked for none.
        runtime: The device's.
        timers: Of the steps so far.
    """

    def __init__(self, parts: RunnerParts) -> None:
        self.model = cast(Executable, parts.model)
        self._encoder = parts.model if isinstance(parts.model, EncoderModel) else None
        self._pooler = parts.pooler
        self.runtime = parts.runtime
        self.timers = StepTimers()
        self._classified = parts.classified
        self._sampler = parts.sampler
        self._batch = parts.batch
        self._inputs = parts.inputs
        self._builders = parts.builders
        self._graphs = parts.graphs
        self._lora = parts.lora

    def reset_timers(self) -> None:
        """Start to count again."""
        self.timers = StepTimers()
        if self._inputs.dispatch is not None:
            self._inputs.dispatch.reset_counters()

    @property
    def graphs(self) -> StepGraphs | None:
        """Captures and replays steps; ``None``: the plan has no graphs."""
        return self._graphs

    @property
    def dispatch(self) -> GraphDispatch | None:
        """Graphs in use, with counters of their steps; ``None``: every step runs eagerly."""
        return self._inputs.dispatch

    def use_graphs(self, captured: Sequence[StepGraph]) -> None:
        """Replay these from now on, wherever one fits a step."""
        self._inputs.dispatch = GraphDispatch(captured) if captured else None

    def forget(self, req_ids: Sequence[str]) -> None:
        """Drop requests outside a step."""
        for req_id in req_ids:
            self._batch.remove(req_id)
        if self._pooler is not None:
            self._pooler.forget(req_ids)

    def submit(self, step: SchedulerOutput) -> ModelStep:
        """Enqueue the forward of one step."""
        began = time.perf_counter()
        self._batch.update(step)
        if self._pooler is not None:
            self._begin_pooling(self._pooler, step)
        inputs = self.prepare_inputs(step)
        prepared = time.perf_counter()
        with self.runtime.inference_mode():
            if self._lora is not None:
                self._begin_lora(self._lora, inputs)
            logits = self.forward(inputs)
        self.timers.num_steps += 1
        self.timers.prepare_s += prepared - began
        self.timers.forward_s += time.perf_counter() - prepared
        return ModelStep(self, step.step_id, inputs, logits)

    def _begin_pooling(self, pooler: Pooler, step: SchedulerOutput) -> None:
        pooler.forget(step.finished_req_ids)
        pooler.forget(step.preempted_req_ids)
        for new in step.scheduled_new_reqs:
            assert new.pooling_params is not None, "a model that makes vectors does nothing else"
            pooler.add(new.request_id, new.pooling_params)

    def _begin_lora(self, lora: LoRASlots, inputs: StepInputs) -> None:
        if inputs.lora_slots is not None:
            lora.begin_step(inputs.lora_slots)
            return
        if (self._batch.lora_slots[inputs.rows] != NO_LORA).any():
            raise PluginError(
                f"{type(self).__module__}:{type(self).__qualname__} prepares inputs without "
                "lora_slots for requests that use adapters; take them from the core's own"
            )
        lora.end_step()

    def prepare_inputs(self, step: SchedulerOutput) -> StepInputs:
        """The step's tensors."""
        return self._inputs.build(step.num_scheduled_tokens)

    def attention_step(self, inputs: StepInputs) -> AttentionStep:
        """What the model's attention layers read; made once per step."""
        return AttentionStep(
            metadata=[
                builder.build(common)
                for builder, common in zip(self._builders, inputs.common, strict=True)
            ],
            slot_mappings=[common.slot_mapping for common in inputs.common],
        )

    def forward(self, inputs: StepInputs) -> torch.Tensor | None:
        """Logits of the rows that are sampled; ``None`` when no row is. An override hands hidden
        states to `read_prompts` where the inputs have ``prompts``, and to `pool` where the model
        makes vectors."""
        hidden = self.hidden_states(inputs)
        if self._pooler is not None:
            self.pool(hidden, inputs)
            return None
        if inputs.prompts is not None:
            inputs.prompt_logprobs = self.read_prompts(hidden, inputs.prompts)
        if not inputs.sampled.size:
            return None
        if inputs.logits_rows is not None:
            hidden = hidden.index_select(0, inputs.logits_rows)
        elif inputs.num_padding:
            hidden = hidden[: -inputs.num_padding]
        return self.model.compute_logits(hidden)

    def hidden_states(self, inputs: StepInputs) -> torch.Tensor:
        """Of every token of the step, padding included."""
        if self._encoder is not None:
            assert inputs.encoder is not None, "steps of a model without a cache have it"
            return self._encoder.forward(inputs.token_ids, inputs.positions, inputs.encoder)
        step = self.attention_step(inputs)
        if inputs.graph is None:
            return self.model.forward(inputs.token_ids, inputs.positions, step)
        assert self._graphs is not None, "whoever chose the graph has captured it"
        return self._graphs.replay(inputs.graph, step)

    def pool(self, hidden: torch.Tensor, inputs: StepInputs) -> None:
        """Fill in ``StepInputs.pooled``.

        Args:
            hidden: ``[num_tokens, hidden_size]``, of every token of the step.
            inputs: Of the step.
        """
        assert self._pooler is not None, "the model makes vectors"
        req_ids = [self._batch.req_ids[row] for row in inputs.rows.tolist()]
        inputs.pooled = self._pooler.pool(hidden, inputs, req_ids)

    def read_prompts(self, hidden: torch.Tensor, prompts: PromptTokens) -> TopLogprobs:
        """Log-probabilities of prompts, for ``StepInputs.prompt_logprobs``.

        Their logits can be many more than a step's: a part of them at a time, as many as the
        sequences of a step, whose memory is counted.

        Args:
            hidden: ``[num_tokens, hidden_size]``, of every token of the step.
            prompts: Which of them predict what.
        """
        size = max(_FEWEST_ROWS, self._batch.token_ids.shape[0])
        rows, token_ids = (
            torch.split(torch.from_numpy(values).to(hidden.device, non_blocking=True), size)
            for values in (prompts.hidden_rows, prompts.token_ids)
        )
        count = int(prompts.num_logprobs.max())
        return joined(
            [
                self._sampler.report(
                    self.model.compute_logits(hidden.index_select(0, some)), own, count
                )
                for some, own in zip(rows, token_ids, strict=True)
            ]
        )

    def sample(self, step: ModelStep) -> ModelStep:
        """Enqueue the choice of tokens and their way back to the host."""
        began = time.perf_counter()
        inputs = step.inputs
        if step.logits is not None:
            rows = inputs.rows[inputs.sampled]
            asked = self._batch.sampling_inputs(rows)
            if step.grammar is not None:
                asked = replace(asked, grammar=self._grammar_rows(step.grammar, rows))
            with self.runtime.inference_mode():
                step.sampled = self._to_host(self._sampler.sample(step.logits, asked))
        if (of_prompts := inputs.prompt_logprobs) is not None:
            inputs.prompt_logprobs = TopLogprobs(
                self._host_copy(of_prompts.logprob),
                self._host_copy(of_prompts.top_ids),
                self._host_copy(of_prompts.top_logprobs),
            )
        if inputs.pooled is not None:
            inputs.pooled = self._host_copy(inputs.pooled)
        # Also where nothing is sampled: the next step writes the host buffers of this one.
        step.event = self.runtime.new_event()
        step.event.record()
        self._batch.num_computed[inputs.rows] = inputs.new_computed
        self.timers.sample_s += time.perf_counter() - began
        return step

    def finish(self, step: ModelStep) -> ModelRunnerOutput:
        """Wait for a sampled step and take its tokens into the batch."""
        if step.event is not None:
            with self._classified(step.step_id):
                step.event.synchronize()
        inputs, batch = step.inputs, self._batch
        of_prompts = self._prompt_logprobs(inputs)
        if step.sampled is None:
            return ModelRunnerOutput(
                step.step_id, [], [], prompt_logprobs=of_prompts, pooled=self._pooled(inputs)
            )
        rows = inputs.rows[inputs.sampled]
        token_ids = step.sampled.token_ids.numpy()
        batch.append_tokens(rows, token_ids)
        req_ids = [batch.req_ids[row] for row in rows.tolist()]
        return ModelRunnerOutput(
            step.step_id,
            req_ids,
            token_ids.reshape(-1, 1).tolist(),
            self._logprobs(step.sampled, rows, req_ids),
            of_prompts,
        )

    def _pooled(self, inputs: StepInputs) -> dict[str, list[float]]:
        if inputs.pooled is None or self._pooler is None:
            return {}
        rows = inputs.rows[inputs.sampled].tolist()
        req_ids = [self._batch.req_ids[row] for row in rows]
        return {
            req_id: self._pooler.finish(req_id, values)
            for req_id, values in zip(req_ids, inputs.pooled.numpy(), strict=True)
        }

    def _grammar_rows(self, grammar: GrammarMask, rows: npt.NDArray[np.intp]) -> GrammarRows | None:
        """Which of the step's rows the masks are for."""
        places = {self._batch.req_ids[row]: place for place, row in enumerate(rows.tolist())}
        found = [(places[one], at) for at, one in enumerate(grammar.req_ids) if one in places]
        if not found:
            return None
        bitmask = grammar.bitmask
        if len(found) < len(grammar.req_ids):
            bitmask = bitmask[[at for _, at in found]]
        return GrammarRows(np.array([place for place, _ in found], np.int64), bitmask)

    def _to_host(self, sampled: SampledTokens) -> SampledTokens:
        return SampledTokens(
            self._host_copy(sampled.token_ids),
            *(
                None if tensor is None else self._host_copy(tensor)
                for tensor in (sampled.logprob, sampled.top_ids, sampled.top_logprobs)
            ),
        )

    def _host_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        host = self.runtime.empty_host(tuple(tensor.shape), tensor.dtype)
        return host.copy_(tensor, non_blocking=True)

    def _logprobs(
        self, sampled: SampledTokens, rows: npt.NDArray[np.intp], req_ids: list[str]
    ) -> dict[str, TokenLogprobs]:
        if sampled.logprob is None or sampled.top_ids is None or sampled.top_logprobs is None:
            return {}
        found = TopLogprobs(sampled.logprob, sampled.top_ids, sampled.top_logprobs)
        asked = [self._batch.sampling.num_logprobs.get(row) for row in rows.tolist()]
        entries = sampled_logprobs(sampled.token_ids.tolist(), found, asked)
        return {
            req_id: entry
            for req_id, entry in zip(req_ids, entries, strict=True)
            if entry is not None
        }

    def _prompt_logprobs(self, inputs: StepInputs) -> dict[str, list[TokenLogprobs]]:
        if inputs.prompts is None or inputs.prompt_logprobs is None:
            return {}
        req_ids = [self._batch.req_ids[row] for row in inputs.prompts.rows.tolist()]
        entries = prompt_logprobs(inputs.prompts, inputs.prompt_logprobs)
        return dict(zip(req_ids, entries, strict=True))
