from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from dougong.server.latency import Latency, RecentLatency

BOUNDS = (0.005, 0.05, 0.5, 5.0)
TEXT = "What it is."


def made(values: Sequence[float], registry: CollectorRegistry | None = None) -> Latency:
    latency = Latency(
        "wait_seconds", TEXT, registry=registry or CollectorRegistry(), buckets=BOUNDS
    )
    for value in values:
        latency.observe(value)
    return latency


def samples_of(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


def test_prometheus_reads_what_its_own_histogram_would_show() -> None:
    values = [0.0, 0.005, 0.0051, 0.25, 0.5, 4.5, 70.0]
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram("wait_seconds", TEXT, registry=theirs, buckets=BOUNDS)
    made(values, ours)
    for value in values:
        histogram.observe(value)
    assert samples_of(ours) == samples_of(theirs)


def test_taking_the_late_ones_changes_nothing_for_prometheus() -> None:
    registry = CollectorRegistry()
    latency = made([0.1, 0.2], registry)
    before = samples_of(registry)
    assert sum(latency.take().values()) == 2
    assert samples_of(registry) == before
    assert not latency.take()


def test_what_waits_to_be_counted_is_bounded_and_lost_nowhere() -> None:
    registry = CollectorRegistry()
    latency = made([0.01] * 10_000, registry)
    assert registry.get_sample_value("wait_seconds_count") == 10_000
    assert sum(latency.take().values()) == 10_000


def test_a_second_one_of_the_same_name_is_refused() -> None:
    registry = CollectorRegistry()
    made([], registry)
    with pytest.raises(ValueError, match="wait_seconds"):
        made([], registry)


def test_quantiles_are_within_three_percent_whatever_the_scale() -> None:
    draw = random.Random(7)
    for scale in (1e-4, 0.02, 3.0, 900.0):
        values = sorted(scale * draw.lognormvariate(0, 0.6) for _ in range(2001))
        recent = RecentLatency(1)
        recent.add(made(values).take())
        half, most = recent.quantiles(0.5, 0.95)
        assert half == pytest.approx(values[1000], rel=0.03)
        assert most == pytest.approx(values[1900], rel=0.03)


def test_quantiles_forget_old_takes_and_say_where_there_was_nothing() -> None:
    recent = RecentLatency(2)
    assert recent.quantiles(0.5, 0.95) == (None, None)
    for value in (1.0, 2.0, 4.0):
        recent.add(made([value]).take())
    least, most = recent.quantiles(0.0, 1.0)
    assert least == pytest.approx(2, rel=0.03)
    assert most == pytest.approx(4, rel=0.03)


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-12, 1e12])
def test_no_number_is_too_odd(value: float) -> None:
    recent = RecentLatency(1)
    recent.add(made([value]).take())
    (told,) = recent.quantiles(0.5)
    assert told is not None
    assert 0 < told < 2e5
