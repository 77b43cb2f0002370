"""Padding of a step's inputs, whatever lay there before."""

from __future__ import annotations

import random

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dougong.contracts import GraphLevel
from dougong.cpu.runtime import CpuDeviceRuntime
from dougong.worker import InputBatch
from dougong.worker.graph_dispatch import GraphDispatch, StepGraph
from dougong.worker.padding_step import padding_step
from dougong.worker.step_inputs import StepInputBuilder, StepInputs
from dougong.worker.step_tensors import StepTensors
from tests.unit.worker.test_input_batch import new, step

BLOCK_SIZE, MAX_SEQS, MAX_TOKENS, MAX_LEN = 4, 8, 48, 40


def builder_of(batch: InputBatch) -> StepInputBuilder:
    return StepInputBuilder(
        batch,
        CpuDeviceRuntime(),
        torch.device("cpu"),
        max_num_seqs=MAX_SEQS,
        max_num_tokens=MAX_TOKENS,
        block_size=BLOCK_SIZE,
        slot_dtypes=(torch.int32,),
    )


def poisoned(builder: StepInputBuilder) -> None:
    """What an earlier step may have left: values that no step may meet in its padding."""
    tensors = builder.tensors
    for buffer in (tensors.token_ids, tensors.positions, tensors.seq_lens, *tensors.slots):
        buffer.array[:] = 99
    tensors.cu_seqlens.array[1:] = 99
    tensors.tables[0].array[:] = 7


def built(lengths: list[tuple[int, int]], graph: StepGraph | None, case: int) -> StepInputs:
    """Inputs of requests with these computed and scheduled tokens, for that graph."""
    rng = random.Random(case)
    batch = InputBatch(
        max_num_seqs=MAX_SEQS,
        max_model_len=MAX_LEN,
        block_size=BLOCK_SIZE,
        num_groups=1,
        vocab_size=100,
    )
    free = iter(rng.sample(range(200), 100))
    for index, (computed, scheduled) in enumerate(lengths):
        count = computed + scheduled
        blocks = [next(free) for _ in range(-(-count // BLOCK_SIZE))]
        tokens = [rng.randrange(1, 90) for _ in range(count)]
        batch.update(step(new(f"r{index}", tokens, blocks, computed)))
    builder = builder_of(batch)
    if graph is not None:
        builder.tensors.widen()
        builder.dispatch = GraphDispatch([graph])
    poisoned(builder)
    return builder.build({f"r{index}": one for index, (_, one) in enumerate(lengths)})


@st.composite
def padded_steps(draw: st.DrawFn) -> tuple[list[tuple[int, int]], StepGraph]:
    """Computed and scheduled tokens of each request, and a graph that holds the step."""
    kind = draw(st.sampled_from(list(GraphLevel)[1:]))
    most = 1 if kind is GraphLevel.DECODE else 5
    lengths = draw(
        st.lists(st.tuples(st.integers(0, 20), st.integers(1, most)), min_size=1, max_size=MAX_SEQS)
    )
    num_tokens = sum(scheduled for _, scheduled in lengths)
    largest = MAX_SEQS if kind is GraphLevel.DECODE else MAX_TOKENS
    size = draw(st.integers(num_tokens, largest))
    num_seqs = 0 if kind is GraphLevel.PIECEWISE else min(size, MAX_SEQS)
    return lengths, StepGraph(kind, size, num_seqs)


@given(padded=padded_steps(), case=st.integers(0, 1000))
def test_padding_is_neutral_and_what_is_no_padding_is_as_in_an_eager_step(
    padded: tuple[list[tuple[int, int]], StepGraph], case: int
) -> None:
    lengths, graph = padded
    eager, inputs = built(lengths, None, case), built(lengths, graph, case)
    plain, common = eager.common[0], inputs.common[0]
    num_tokens, num_seqs = plain.num_tokens, plain.num_reqs
    assert inputs.graph == graph
    assert inputs.num_padding == graph.num_tokens - num_tokens

    rows = ((inputs.token_ids, eager.token_ids, 0), (inputs.positions, eager.positions, 0),
            (common.slot_mapping, plain.slot_mapping, -1))  # fmt: skip
    for mine, true, neutral in rows:
        assert mine.shape == (graph.num_tokens,)
        assert mine[:num_tokens].equal(true)
        assert (mine[num_tokens:] == neutral).all()
    padding_seqs = (graph.num_seqs or num_seqs) - num_seqs
    assert common.num_reqs == num_seqs + padding_seqs
    assert common.cu_seqlens_q.tolist() == [
        *plain.cu_seqlens_q.tolist(),
        *[num_tokens] * padding_seqs,
    ]
    assert common.seq_lens.tolist() == [*plain.seq_lens.tolist(), *[0] * padding_seqs]
    assert common.cu_seqlens_q.equal(common.cu_seqlens_q_cpu)
    assert common.seq_lens.equal(common.seq_lens_cpu)
    for name in ("num_tokens", "max_query_len", "max_seq_len"):
        assert getattr(common, name) == getattr(plain, name)
    width = plain.block_table.shape[1]
    assert common.block_table[:num_seqs, :width].equal(plain.block_table)
    if graph.is_whole:
        assert common.block_table.shape == (graph.num_seqs, MAX_LEN // BLOCK_SIZE)
    assert inputs.sampled.tolist() == eager.sampled.tolist()
    assert (inputs.logits_rows is None) == (eager.logits_rows is None)


def test_every_step_of_a_graph_lies_where_its_capture_lay() -> None:
    batch = InputBatch(
        max_num_seqs=MAX_SEQS, max_model_len=MAX_LEN, block_size=BLOCK_SIZE, num_groups=1,
        vocab_size=100,
    )  # fmt: skip
    graph = StepGraph(GraphLevel.DECODE, 4, 4)
    builder = builder_of(batch)
    builder.tensors.widen()
    captured = addresses(padding_step(builder.tensors, graph, MAX_LEN))
    builder.dispatch = GraphDispatch([graph])
    batch.update(step(new("a", [1, 2, 3], [5], 2), new("b", list(range(30)), list(range(8)), 29)))
    for names in ({"a": 1}, {"b": 1}, {"a": 1, "b": 1}):
        assert addresses(builder.build(names)) == captured


def addresses(inputs: StepInputs) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    common = inputs.common[0]
    tensors = (
        inputs.token_ids, inputs.positions, common.cu_seqlens_q, common.seq_lens,
        common.block_table, common.slot_mapping,
    )  # fmt: skip
    return [(one.data_ptr(), tuple(one.shape), one.stride()) for one in tensors]


def test_a_whole_steps_capture_is_told_the_largest_lengths_and_writes_nowhere() -> None:
    tensors = StepTensors(
        CpuDeviceRuntime(), torch.device("cpu"), max_num_seqs=4, max_num_tokens=32, max_blocks=10,
        slot_dtypes=(torch.int64, torch.int32),
    )  # fmt: skip
    tensors.widen()
    decode = padding_step(tensors, StepGraph(GraphLevel.DECODE, 3, 3), MAX_LEN)
    assert [one.max_query_len for one in decode.common] == [1, 1]
    assert [one.max_seq_len for one in decode.common] == [MAX_LEN, MAX_LEN]
    assert decode.common[0].cu_seqlens_q.tolist() == [0, 1, 2, 3]
    full = padding_step(tensors, StepGraph(GraphLevel.FULL, 10, 4), MAX_LEN)
    assert full.common[0].max_query_len == full.common[0].num_tokens == 10
    assert full.common[0].cu_seqlens_q.tolist() == [0, 2, 5, 7, 10]
    assert full.common[0].seq_lens.tolist() == [2, 3, 2, 3]
    for common in (*decode.common, *full.common):
        assert (common.slot_mapping == -1).all()
        assert (common.block_table == 0).all()
    assert padding_step(tensors, StepGraph(GraphLevel.PIECEWISE, 10, 0), MAX_LEN).common == []


def test_wide_tables_are_counted() -> None:
    tensors = StepTensors(
        CpuDeviceRuntime(), torch.device("cpu"), max_num_seqs=4, max_num_tokens=32, max_blocks=10,
        slot_dtypes=(torch.int64, torch.int32),
    )  # fmt: skip
    assert tensors.num_wide_bytes() == 0
    tensors.widen()
    assert tensors.num_wide_bytes() == 2 * 4 * 10 * np.dtype(np.int32).itemsize
