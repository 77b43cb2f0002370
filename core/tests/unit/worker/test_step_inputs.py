"""Inputs of a step, against a plain loop over requests and tokens."""

from __future__ import annotations

import random

import pytest
import torch

from dougong.cpu.runtime import CpuDeviceRuntime
from dougong.worker import InputBatch
from dougong.worker.step_inputs import StepInputBuilder
from tests.unit.worker.test_input_batch import new, step

BLOCK_SIZE = 4


@pytest.mark.parametrize("case", range(8))
def test_tokens_positions_slots_and_lengths_are_those_of_the_loop(case: int) -> None:
    rng = random.Random(case)
    batch = InputBatch(
        max_num_seqs=8, max_model_len=40, block_size=BLOCK_SIZE, num_groups=1, vocab_size=100
    )
    free = list(range(100))
    rng.shuffle(free)
    requests = {}
    for index in range(rng.randint(1, 6)):
        length = rng.randint(1, 30)
        tokens = [rng.randrange(100) for _ in range(length)]
        blocks = [free.pop() for _ in range(-(-length // BLOCK_SIZE))]
        computed = rng.randrange(length)
        requests[f"r{index}"] = (tokens, blocks, computed)
    batch.update(step(*(new(name, *parts) for name, parts in requests.items())))
    names = [name for name in requests if case % 2 or rng.random() < 0.7] or ["r0"]
    rng.shuffle(names)
    scheduled = {name: rng.randint(1, len(requests[name][0]) - requests[name][2]) for name in names}
    builder = StepInputBuilder(
        batch,
        CpuDeviceRuntime(),
        torch.device("cpu"),
        max_num_seqs=8,
        max_num_tokens=200,
        block_size=BLOCK_SIZE,
        slot_dtypes=(torch.int64,),
    )
    inputs = builder.build(scheduled)

    order = [batch.req_ids[row] for row in inputs.rows.tolist()]
    assert sorted(order) == sorted(names)
    token_ids, positions, slots, starts, sampled, last_rows = [], [], [], [0], [], []
    for index, name in enumerate(order):
        tokens, blocks, computed = requests[name]
        for position in range(computed, computed + scheduled[name]):
            token_ids.append(tokens[position])
            positions.append(position)
            slots.append(blocks[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE)
        starts.append(len(token_ids))
        if computed + scheduled[name] == len(tokens):
            sampled.append(index)
            last_rows.append(len(token_ids) - 1)
    common = inputs.common[0]
    assert inputs.token_ids.tolist() == token_ids
    assert inputs.positions.tolist() == positions
    assert common.slot_mapping.tolist() == slots
    assert common.cu_seqlens_q.tolist() == common.cu_seqlens_q_cpu.tolist() == starts
    assert common.max_query_len == max(scheduled.values())
    assert common.num_tokens == len(token_ids)
    lengths = [requests[name][2] + scheduled[name] for name in order]
    assert common.seq_lens.tolist() == common.seq_lens_cpu.tolist() == lengths
    assert common.max_seq_len == max(lengths)
    for index, name in enumerate(order):
        needed = -(-lengths[index] // BLOCK_SIZE)
        assert common.block_table[index, :needed].tolist() == requests[name][1][:needed]
    assert inputs.sampled.tolist() == sampled
    if inputs.logits_rows is None:
        assert last_rows == list(range(len(token_ids)))
    else:
        assert inputs.logits_rows.tolist() == last_rows
