"""Prometheus metrics of a server: its requests as they end, its engine as it last told."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from dougong.engine.core import EngineStats
from dougong.scheduler import SchedulerStats
from dougong.server.grammar_metrics import grammar_families
from dougong.server.latency import Latency

_FIRST_TOKEN_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_BETWEEN_TOKENS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_REQUEST_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_OUTCOMES = ("finished", "refused", "aborted", "failed")


class RequestMetrics:
    """Counts what clients got.

    Args:
        registry: The engine's own.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "dougong_requests",
            "Requests for text or vectors that ended, by how: finished, refused, aborted (the "
            "client left) or failed.",
            ("route", "outcome"),
            registry=registry,
        )
        self.prompt_tokens = Counter(
            "dougong_prompt_tokens", "Prompt tokens of requests that ended.", registry=registry
        )
        self.cached_tokens = Counter(
            "dougong_cached_prompt_tokens",
            "Those of them that the prefix cache had.",
            registry=registry,
        )
        self.generated_tokens = Counter(
            "dougong_generated_tokens", "Tokens generated, as they come.", registry=registry
        )
        self.first_token = Latency(
            "dougong_time_to_first_token_seconds",
            "From a request's arrival to its first token.",
            registry=registry,
            buckets=_FIRST_TOKEN_S,
        )
        self.between_tokens = Latency(
            "dougong_inter_token_seconds",
            "Between two arrivals of a request's tokens, per token of a sequence.",
            registry=registry,
            buckets=_BETWEEN_TOKENS_S,
        )
        self.duration = Histogram(
            "dougong_request_seconds",
            "From a request's arrival to its end, where it was finished.",
            registry=registry,
            buckets=_REQUEST_S,
        )

    def num_generated(self) -> int:
        """Tokens since the start."""
        return int(_total(self.generated_tokens))

    def num_tokens(self) -> dict[str, int]:
        """Tokens since the start: of prompts, those of them that were cached, and generated."""
        return {
            "prompt_tokens": int(_total(self.prompt_tokens)),
            "cached_tokens": int(_total(self.cached_tokens)),
            "generated_tokens": self.num_generated(),
        }

    def num_ended(self) -> dict[str, int]:
        """Outcome → requests of all routes since the start."""
        counts = dict.fromkeys(_OUTCOMES, 0)
        for sample in _totals(self.requests):
            outcome = sample.labels["outcome"]
            counts[outcome] = counts.get(outcome, 0) + int(sample.value)
        return counts


class EngineCollector(Collector):
    """Shows the engine's own numbers as of its last answer.

    Attributes:
        stats: The last answer; ``None``: there was none yet.
        is_alive: Whether the engine answers at all.
        age_s: Seconds since the last answer.
    """

    def __init__(self) -> None:
        self.stats: EngineStats | None = None
        self.is_alive = True
        self.age_s = 0.0

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The first name alone, so that a second engine in one registry is refused."""
        yield GaugeMetricFamily("dougong_engine_up", "1 while the engine lives.")

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """One sample of each."""
        up = "1 while the engine lives."
        age = "Age of what the engine tells here; it grows during a long step."
        yield GaugeMetricFamily("dougong_engine_up", up, float(self.is_alive))
        yield GaugeMetricFamily("dougong_engine_stats_age_seconds", age, self.age_s)
        if self.stats is not None:
            yield from _scheduler_families(self.stats.scheduler)
            steps, times = "Steps computed.", self.stats.times
            yield CounterMetricFamily("dougong_steps", steps, value=times["num_steps"])
            spent = "Seconds of all steps together."
            yield CounterMetricFamily("dougong_step_seconds", spent, value=times["step_s"])
            yield from grammar_families(self.stats.structured)


def _totals(counter: Counter) -> Iterator[Sample]:
    """One for each set of labels."""
    for family in counter.collect():
        yield from (one for one in family.samples if one.name.endswith("_total"))


def _total(counter: Counter) -> float:
    return sum(sample.value for sample in _totals(counter))


def _scheduler_families(
    stats: SchedulerStats,
) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    cache = stats.kv_cache
    gauges = {
        "dougong_running_requests": ("Sequences that hold KV blocks.", stats.num_running),
        "dougong_waiting_requests": ("Sequences that wait for them.", stats.num_waiting),
        "dougong_kv_blocks": ("KV blocks that requests can hold.", cache.num_usable_blocks),
        "dougong_kv_held_blocks": ("KV blocks that they do hold.", cache.num_held_blocks),
        "dougong_kv_cached_blocks": ("Free KV blocks with reusable KV.", cache.num_cached_blocks),
        "dougong_kv_held_ratio": ("Held KV blocks over all, 0 to 1.", cache.held_fraction),
    }
    counters = {
        "dougong_preemptions": ("Requests that lost their blocks.", stats.num_preemptions),
        "dougong_kv_evictions": ("Cached KV blocks given up.", cache.num_evictions),
        "dougong_prefix_queried_tokens": (
            "Tokens looked up in the prefix cache.",
            cache.num_queried_tokens,
        ),
        "dougong_prefix_hit_tokens": ("Those that it had.", cache.num_hit_tokens),
    }
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(name, text, float(value))
    for name, (text, value) in counters.items():
        yield CounterMetricFamily(name, text, value=float(value))
