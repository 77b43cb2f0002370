from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from statistics import mean, stdev

import pytest

from dougong.cli.bench_serving.workload import LEAST_TOKEN_ID, ServeWorkload
from dougong.errors import ConfigError

WORK = ServeWorkload(model="m", num_requests=5, input_len=10, output_len=7, num_warm_up=1)


def test_the_same_seed_asks_the_same_and_another_one_does_not() -> None:
    assert WORK.bodies() == WORK.bodies()
    assert len(set(WORK.bodies())) == 6
    assert set(WORK.bodies()).isdisjoint(replace(WORK, seed=1).bodies())


def test_a_completion_has_so_many_random_ids_and_streams_with_its_usage() -> None:
    content = json.loads(replace(WORK, vocab_size=200).bodies()[0])
    ids = content.pop("prompt")
    assert len(ids) == 10
    assert all(LEAST_TOKEN_ID <= one < 200 for one in ids)
    assert content == {
        "model": "m", "max_tokens": 7, "temperature": 0.0, "stream": True, "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip


def test_a_chat_has_so_many_words_and_ends_where_the_model_likes_if_asked() -> None:
    content = json.loads(replace(WORK, route="chat", ignore_eos=False).bodies()[0])
    (message,) = content["messages"]
    assert len(message["content"].split()) == 10
    assert "ignore_eos" not in content


def test_lengths_are_spread_around_their_mean() -> None:
    contents = [json.loads(one) for one in replace(WORK, num_requests=200, spread=0.5).bodies()]
    lengths = [len(one["prompt"]) for one in contents]
    assert (min(lengths), max(lengths)) == (5, 15)
    assert mean(lengths) == pytest.approx(10, abs=0.5)
    assert {one["max_tokens"] for one in contents} > {4, 10}


def test_all_are_due_at_once_unless_there_is_a_rate() -> None:
    assert WORK.arrivals_s() == [0.0] * 5


@pytest.mark.parametrize(("burstiness", "variation"), [(1.0, 1.0), (0.25, 2.0), (100.0, 0.1)])
def test_arrivals_have_the_rate_and_the_burstiness_asked_for(
    burstiness: float, variation: float
) -> None:
    work = replace(WORK, num_requests=4000, request_rate=8.0, burstiness=burstiness)
    due = work.arrivals_s()
    gaps = [later - sooner for sooner, later in pairwise(due)]
    assert due[0] == 0
    assert mean(gaps) == pytest.approx(1 / 8, rel=0.1)
    assert stdev(gaps) / mean(gaps) == pytest.approx(variation, rel=0.1)


def test_it_is_plain_data_with_infinity_as_a_word() -> None:
    assert math.isinf(WORK.request_rate)
    assert WORK.to_json()["request_rate"] == "inf"
    assert json.loads(json.dumps(WORK.to_json())) == WORK.to_json()


def test_everything_out_of_range_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        replace(WORK, route="x", spread=1.0, request_rate=0, burstiness=math.inf, vocab_size=9)
    for option in ("--route", "--spread", "--request-rate", "--burstiness", "--vocab-size"):
        assert option in str(error.value)
