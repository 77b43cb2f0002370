from __future__ import annotations

import pytest

from dougong.config.scheduler import SchedulerConfig
from dougong.errors import ConfigError

FITS = {"max_num_seqs": 8, "max_num_batched_tokens": 64, "max_model_len": 128}


def test_a_budget_of_one_token_per_seat_is_enough() -> None:
    assert SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=8, max_model_len=2)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs=0"),
        ({"max_num_batched_tokens": 7}, "below max_num_seqs=8"),
        ({"max_model_len": 1}, "max_model_len=1"),
        ({"policy": "lifo"}, "fcfs, priority"),
        ({"long_prefill_token_threshold": 0}, "leave it unset"),
    ],
)
def test_what_cannot_work_is_refused_with_what_would(wrong: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        SchedulerConfig(**(FITS | wrong))  # type: ignore[arg-type] # wrong on purpose


def test_all_problems_come_together() -> None:
    with pytest.raises(ConfigError) as caught:
        SchedulerConfig(max_num_seqs=0, max_num_batched_tokens=-1, max_model_len=0)
    assert len(caught.value.problems) == 3
