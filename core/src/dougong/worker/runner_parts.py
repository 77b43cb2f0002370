"""What a runner is made of, for one loaded model and one configuration."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from dougong.contracts import ConfigView, DeviceRuntime, GraphRunner
from dougong.models.encoder_model import EncoderModel
from dougong.worker.input_batch import InputBatch
from dougong.worker.loading import LoadedModel
from dougong.worker.model_runner import RunnerParts
from dougong.worker.pooler import Pooler
from dougong.worker.step_graphs import StepGraphs
from dougong.worker.step_inputs import StepInputBuilder


def make_runner_parts(
    loaded: LoadedModel,
    config: ConfigView,
    runtime: DeviceRuntime,
    device: torch.device,
    classified: Callable[[int | None], AbstractContextManager[None]],
    graph_runner: GraphRunner | None = None,
) -> RunnerParts:
    """Rows, buffers and metadata builders, made anew.

    Args:
        loaded: Whose steps will run.
        config: Final values.
        runtime: Of the device.
        device: Where steps run.
        classified: Makes the block in which a step's errors are named.
        graph_runner: Captures steps; ``None``: the plan has no graphs.

    Raises:
        ImplementationError: A backend cannot make its metadata builder.
    """
    attention = loaded.attention
    assert config.max_num_seqs and config.max_num_batched_tokens and config.max_model_len
    batch = InputBatch(
        max_num_seqs=config.max_num_seqs,
        max_model_len=config.max_model_len,
        block_size=attention.block_size,
        num_groups=len(attention.groups),
        vocab_size=int(config.hf_config["vocab_size"]),
    )
    inputs = StepInputBuilder(
        batch,
        runtime,
        device,
        max_num_seqs=config.max_num_seqs,
        max_num_tokens=config.max_num_batched_tokens,
        block_size=attention.block_size,
        slot_dtypes=tuple(getattr(torch, layout.slot_dtype) for _, layout in attention.groups),
        has_lora=loaded.lora is not None,
    )
    graphs = None
    if graph_runner is not None:
        planned = loaded.plan.graphs
        if planned.decode or planned.full:
            inputs.tensors.widen()
        assert not isinstance(loaded.executable, EncoderModel), "the planner captures none"
        graphs = StepGraphs(
            graph_runner,
            loaded.executable,
            attention,
            inputs.tensors,
            max_num_tokens=max((*planned.decode, *planned.piecewise, *planned.full)),
            max_seq_len=config.max_model_len,
            lora=loaded.lora,
        )
    return RunnerParts(
        model=loaded.executable,
        sampler=loaded.sampler,
        batch=batch,
        inputs=inputs,
        builders=attention.make_builders(),
        runtime=runtime,
        classified=classified,
        graphs=graphs,
        lora=loaded.lora,
        pooler=None if config.pooling is None else Pooler(config.pooling),
    )
