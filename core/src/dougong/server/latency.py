"""Latencies that are counted twice: for Prometheus for good, and finely for the last seconds."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_PER_DOUBLING = 16  # a fine bucket is 4.4 % wide, so that its middle is off by half of that at most
_LEAST_S = 1e-6
_MOST_S = 1e5  # more than a day
_MOST_PENDING = 4096


class Latency(Collector):
    """A Prometheus histogram that costs little where a token is sent: it counts when it is read.

    Args:
        name: Of the metric.
        text: What it measures, for people.
        registry: Shows it.
        buckets: Upper bounds in seconds, rising; one without a bound is added.
    """

    def __init__(
        self, name: str, text: str, *, registry: CollectorRegistry, buckets: Sequence[float]
    ) -> None:
        self._name = name
        self._text = text
        self._bounds = tuple(buckets)
        self._labels = (*map(floatToGoString, self._bounds), "+Inf")
        self._counts = [0] * len(self._labels)
        self._sum_s = 0.0
        self._pending: list[float] = []
        self._fresh: Counter[int] = Counter()
        registry.register(self)

    def observe(self, seconds: float) -> None:
        """Count one."""
        self._pending.append(seconds)
        if len(self._pending) >= _MOST_PENDING:
            self._settle()

    def take(self) -> Counter[int]:
        """Fine bucket → how many since the last call; for `RecentLatency`."""
        self._settle()
        taken, self._fresh = self._fresh, Counter()
        return taken

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """The name alone, so that a second one is refused."""
        yield HistogramMetricFamily(self._name, self._text)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Everything since the start."""
        self._settle()
        buckets = list(zip(self._labels, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._text, buckets=buckets, sum_value=self._sum_s)

    def _settle(self) -> None:
        pending, self._pending = self._pending, []
        for seconds in pending:
            self._counts[bisect_left(self._bounds, seconds)] += 1
            bounded = min(max(seconds, _LEAST_S), _MOST_S)
            self._fresh[int(math.log2(bounded / _LEAST_S) * _PER_DOUBLING)] += 1
        self._sum_s += sum(pending)


class RecentLatency:
    """Quantiles over the last few takes.

    Args:
        num_takes: How many of them count.
    """

    def __init__(self, num_takes: int) -> None:
        self._takes: deque[Counter[int]] = deque(maxlen=num_takes)

    def add(self, taken: Counter[int]) -> None:
        """The newest one; the oldest one is forgotten where there are too many."""
        self._takes.append(taken)

    def quantiles(self, *shares: float) -> tuple[float | None, ...]:
        """Seconds that so much of all was not above; ``None``: there was nothing.

        Args:
            shares: Each from 0 to 1.
        """
        counts = sum(self._takes, Counter[int]())
        return tuple(_quantile(counts, share) for share in shares)


def _quantile(counts: Mapping[int, int], share: float) -> float | None:
    wanted = share * sum(counts.values())
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= wanted:
            return float(_LEAST_S * 2 ** ((bucket + 0.5) / _PER_DOUBLING))
    return None
