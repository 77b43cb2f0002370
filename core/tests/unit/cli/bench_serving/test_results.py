from __future__ import annotations

import pytest

from dougong.cli.bench_serving.answer import Answer
from dougong.cli.bench_serving.results import (
    errors_of,
    percentile,
    results_of,
    tokens_over_time,
)
from dougong.cli.bench_serving.run import ServeRun


def answer(begun_s: float, *text_s: float, error: str | None = None) -> Answer:
    return Answer(
        begun_s, begun_s, text_s[-1] if text_s else begun_s, list(text_s), 10, len(text_s), error
    )


RUN = ServeRun(
    begun_s=100.0,
    answers=[
        answer(100.0, 101.0, 102.0, 103.0),
        answer(100.0, 103.0, 104.0, 110.0),
        answer(105.0, error="gone"),
    ],
    client_cpu_s=0.5,
)


def test_rates_are_over_the_whole_run_and_of_whole_answers() -> None:
    results = results_of(RUN)
    assert (results["num_whole_answers"], results["num_errors"]) == (2, 1)
    assert results["total_s"] == 10
    assert results["requests_per_s"] == 0.2
    assert results["output_tokens_per_s"] == 0.6
    assert results["input_tokens_per_s"] == 2.0
    assert results["total_tokens_per_s"] == 2.6
    assert results["mean_requests_at_once"] == (3 + 10) / 10
    assert results["client_cpu_fraction"] == 0.05


def test_every_latency_has_its_mean_and_percentiles() -> None:
    results = results_of(RUN)
    assert results["mean_time_to_first_token_s"] == 2.0
    assert results["p50_time_to_first_token_s"] == 2.0
    assert results["p50_inter_token_s"] == 1.0
    assert results["p99_inter_token_s"] == pytest.approx(5.85)
    assert results["mean_time_per_token_s"] == pytest.approx((1.0 + 3.5) / 2)
    assert results["p90_end_to_end_s"] == pytest.approx(3 + 0.9 * 7)


def test_a_run_without_a_whole_answer_has_no_latency() -> None:
    results = results_of(ServeRun(0.0, [answer(1.0, error="x")], 0.0))
    assert results["num_errors"] == 1
    assert not any("first" in name for name in results)


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 3.0), (0.9, 9.0), (1.0, 11.0)])
def test_a_percentile_lies_between_its_neighbours(share: float, value: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 6.0, 11.0], share) == pytest.approx(value)
    assert percentile([4.0], share) == 4.0


def test_tokens_are_counted_where_they_came() -> None:
    assert tokens_over_time(RUN, 5) == [0.5, 1.5, 0.5, 0.0, 0.5]


def test_errors_are_told_by_number() -> None:
    run = ServeRun(0.0, [answer(0.0, error=one) for one in ("a", "b", "b")], 0.0)
    assert list(errors_of(run).items()) == [("b", 2), ("a", 1)]
