"""Prometheus metrics of structured output."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from dougong.engine.structured_requests import StructuredStats


def grammar_families(stats: StructuredStats) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    """One sample of each."""
    compiling = "Sequences that wait for their grammar."
    yield GaugeMetricFamily("dougong_grammar_waiting_requests", compiling, stats.num_compiling)
    following = "Sequences whose text follows a grammar."
    yield GaugeMetricFamily("dougong_grammar_requests", following, stats.num_following)
    counters = {
        "dougong_grammars_compiled": ("Grammars compiled.", stats.num_compiled),
        "dougong_grammar_compile_seconds": ("Seconds that took, beside steps.", stats.compile_s),
        "dougong_grammar_masks": ("Masks computed, one per token.", stats.num_masks),
        "dougong_grammar_mask_seconds": ("Seconds that took, beside forwards.", stats.mask_s),
        "dougong_grammar_wait_seconds": (
            "Seconds that steps waited for masks which were not ready.",
            stats.waited_s,
        ),
    }
    for name, (text, value) in counters.items():
        yield CounterMetricFamily(name, text, value=float(value))
