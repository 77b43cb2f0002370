"""Rows of live requests: additions, removals, blocks, in the order a step prescribes."""

from __future__ import annotations

import numpy as np

from dougong.messages import CachedRequestData, NewRequestData, SamplingParams, SchedulerOutput
from dougong.worker import InputBatch


def new(request_id: str, tokens: list[int], blocks: list[int], computed: int = 0) -> NewRequestData:
    return NewRequestData(
        request_id=request_id,
        token_ids=tokens,
        num_prompt_tokens=len(tokens),
        sampling_params=SamplingParams(temperature=0.0),
        stop_token_ids=frozenset(),
        block_ids=(blocks,),
        num_computed_tokens=computed,
    )


def step(*added: NewRequestData, **fields: object) -> SchedulerOutput:
    return SchedulerOutput(
        step_id=0,
        scheduled_new_reqs=list(added),
        scheduled_cached_reqs=fields.pop("cached", CachedRequestData()),  # type: ignore[arg-type]
        num_scheduled_tokens={},
        total_num_scheduled_tokens=0,
        **fields,  # type: ignore[arg-type]
    )


def batch() -> InputBatch:
    return InputBatch(max_num_seqs=4, max_model_len=64, block_size=16, num_groups=1, vocab_size=100)


def test_a_removed_request_leaves_its_place_to_the_last_one_with_all_it_had() -> None:
    rows = batch()
    rows.update(
        step(new("a", [1, 2], [7]), new("b", [3], [8]), new("c", [4, 5, 6], [9, 2], computed=2))
    )
    rows.update(step(finished_req_ids=["a"]))
    assert rows.req_ids == ["c", "b"]
    row = rows.row_of["c"]
    assert rows.token_ids[row, :3].tolist() == [4, 5, 6]
    assert rows.num_tokens[row] == 3
    assert rows.num_computed[row] == 2
    assert rows.block_tables[0][row, :2].tolist() == [9, 2]
    assert rows.num_blocks[0, row] == 2


def test_blocks_are_appended_behind_those_it_has() -> None:
    rows = batch()
    rows.update(step(new("a", [1] * 16, [5])))
    rows.update(step(cached=CachedRequestData(["a"], [([9, 4],)])))
    assert rows.block_tables[0][0, :3].tolist() == [5, 9, 4]
    rows.update(step(cached=CachedRequestData(["a"], [None])))
    assert rows.num_blocks[0, 0] == 3


def test_a_preempted_request_may_come_back_in_the_same_step() -> None:
    rows = batch()
    rows.update(step(new("a", [1, 2], [3])))
    rows.update(step(new("a", [1, 2, 9], [5]), preempted_req_ids=["a"]))
    assert rows.req_ids == ["a"]
    assert rows.num_tokens[0] == 3
    assert rows.block_tables[0][0, 0] == 5


def test_a_request_that_ended_before_it_was_sent_is_no_error() -> None:
    rows = batch()
    rows.update(step(finished_req_ids=["never sent"]))
    assert rows.num_reqs == 0


def test_sampled_tokens_go_to_the_end_of_their_rows() -> None:
    rows = batch()
    rows.update(step(new("a", [1, 2], [3]), new("b", [4], [5])))
    rows.append_tokens(np.array([1, 0]), np.array([50, 60]))
    assert rows.token_ids[0, :3].tolist() == [1, 2, 60]
    assert rows.token_ids[1, :2].tolist() == [4, 50]
