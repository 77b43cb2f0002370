"""Dummy steps stay inside the model length and the batch, and touch the blocks they say."""

from __future__ import annotations

import pytest

from dougong.worker.dummy_step import dummy_lengths, dummy_step, num_dummy_blocks, spread_lengths


@pytest.mark.parametrize(
    ("num_tokens", "lengths"),
    [(1, [1]), (31, [31]), (32, [31, 1]), (63, [31, 31, 1]), (100, [31, 31, 31])],
)
def test_tokens_go_to_the_fewest_requests_and_no_more_than_a_step_can_hold(
    num_tokens: int, lengths: list[int]
) -> None:
    assert dummy_lengths(num_tokens, max_model_len=32, max_num_seqs=3) == lengths


@pytest.mark.parametrize(
    ("num_tokens", "lengths"),
    [(1, [1]), (2, [1, 1]), (3, [1, 1, 1]), (8, [3, 3, 2]), (93, [31, 31, 31]), (94, [31, 31, 31])],
)
def test_spread_tokens_go_to_as_many_requests_as_can_share_them(
    num_tokens: int, lengths: list[int]
) -> None:
    assert spread_lengths(num_tokens, max_model_len=32, max_num_seqs=3) == lengths


def test_every_prompt_has_blocks_of_its_own_behind_the_reserved_ones() -> None:
    step = dummy_step([31, 16, 1], 16, num_groups=2, first_block=3)
    assert list(step.num_scheduled_tokens.values()) == [31, 16, 1]
    assert step.total_num_scheduled_tokens == 48
    blocks = [block for new in step.scheduled_new_reqs for block in new.block_ids[0]]
    assert blocks == list(range(3, 3 + num_dummy_blocks([31, 16, 1], 16)))
    assert all(len(new.block_ids) == 2 for new in step.scheduled_new_reqs)
