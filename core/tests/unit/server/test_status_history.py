from __future__ import annotations

import json

from dougong.server.status_history import KEPT_SAMPLES, Sample, StatusHistory


def filled(num_samples: int, num_kept: int = KEPT_SAMPLES) -> StatusHistory:
    history = StatusHistory(num_kept)
    for number in range(1, num_samples + 1):
        history.add(Sample(time=1.7e9 + number, running=number))
    return history


def test_fifteen_minutes_stay_and_no_more() -> None:
    history = filled(KEPT_SAMPLES + 7)
    running = history.columns()["running"]
    assert len(history) == len(running) == 15 * 60
    assert (running[0], running[-1]) == (8, KEPT_SAMPLES + 7)
    assert history.last == KEPT_SAMPLES + 7


def test_who_knows_a_sample_gets_the_newer_ones_alone() -> None:
    history = filled(10, num_kept=4)  # 7 to 10 are there
    told = {after: history.columns(after)["running"] for after in (0, 6, 7, 9, 10)}
    assert told == {0: [7, 8, 9, 10], 6: [7, 8, 9, 10], 7: [8, 9, 10], 9: [10], 10: []}


def test_who_names_a_sample_that_never_was_gets_them_all() -> None:
    assert filled(3).columns(4)["running"] == [1, 2, 3]
    assert StatusHistory().columns(5)["time"] == []


def test_columns_are_as_long_as_each_other_and_json_has_them_in_few_digits() -> None:
    history = StatusHistory()
    history.add(Sample(time=1.23456789e9, tokens_per_s=1 / 3, first_token_p50=0.0123456))
    columns = history.columns()
    assert {len(column) for column in columns.values()} == {1}
    assert columns["tokens_per_s"] == [0.3333]
    assert columns["first_token_p50"] == [0.01235]
    assert columns["time"] == [1234567890.0]
    assert columns["kv_held"] == [None]
    assert json.loads(json.dumps(columns, allow_nan=False)) == columns
