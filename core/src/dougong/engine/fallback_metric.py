"""Fallbacks of a plan as a Prometheus metric: ``dougong_fallback_total{level,subject,reason}``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from dougong.planner import ExecutionPlan

_NAME = "dougong_fallback"  # the exposition adds _total
_LABELS = ("level", "subject", "reason")


class FallbackCollector(Collector):
    """Counts what fell back to something more general when an engine was started.

    A plan does not change, so neither do the numbers: a rise means that an engine was started anew.

    Args:
        plan: Of one engine.
    """

    def __init__(self, plan: ExecutionPlan) -> None:
        self._counts = Counter((str(one.level), one.subject, one.reason) for one in plan.fallbacks)

    def describe(self) -> Iterator[CounterMetricFamily]:
        """The name alone, so that a second engine in one registry is refused and not mixed in."""
        yield _family()

    def collect(self) -> Iterator[CounterMetricFamily]:
        """One sample per fallback; none where nothing fell back."""
        family = _family()
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        yield family


def count_fallbacks(plan: ExecutionPlan, registry: CollectorRegistry) -> FallbackCollector:
    """Show a plan's fallbacks in ``registry``, which belongs to one engine.

    Raises:
        ValueError: The registry has another engine's already.
    """
    collector = FallbackCollector(plan)
    registry.register(collector)
    return collector


def metrics_of(plan: ExecutionPlan) -> CollectorRegistry:
    """A registry of one engine's own, with its fallbacks in it."""
    registry = CollectorRegistry()
    count_fallbacks(plan, registry)
    return registry


def _family() -> CounterMetricFamily:
    return CounterMetricFamily(
        _NAME, "Something more general runs in the place of something specialised.", labels=_LABELS
    )
