"""Numbers of one measurement of a server: rates, and how long whom kept waiting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dougong.cli.bench_serving.answer import Answer
from dougong.cli.bench_serving.run import ServeRun

SHARES = (0.5, 0.9, 0.95, 0.99)
LATENCIES = ("time_to_first_token", "inter_token", "time_per_token", "end_to_end")
"""Of an answer's first text; between one event with text and the next; per token after the first;
of the whole answer."""


def results_of(run: ServeRun) -> dict[str, float]:
    """Every number by name; what a name ends with is the unit.

    Latencies are those of whole answers alone, and rates count the tokens of whole answers alone.
    """
    whole = [answer for answer in run.answers if answer.error is None]
    num_input = sum(answer.num_input for answer in whole)
    num_output = sum(answer.num_output for answer in whole)
    results: dict[str, float] = {
        "num_whole_answers": len(whole),
        "num_errors": len(run.answers) - len(whole),
        "total_s": run.seconds,
        "requests_per_s": len(whole) / run.seconds,
        "input_tokens_per_s": num_input / run.seconds,
        "output_tokens_per_s": num_output / run.seconds,
        "total_tokens_per_s": (num_input + num_output) / run.seconds,
        "mean_requests_at_once": _at_once(run),
    }
    for name, values in latencies_of(whole).items():
        if values:
            results[f"mean_{name}_s"] = sum(values) / len(values)
            for share in SHARES:
                results[f"{spelt(share)}_{name}_s"] = percentile(values, share)
    results["client_cpu_fraction"] = run.client_cpu_s / run.seconds
    return results


def latencies_of(whole: Sequence[Answer]) -> Mapping[str, list[float]]:
    """Each of `LATENCIES`, in seconds, sorted."""
    per_token = [one.per_token_s for one in whole]
    found = (
        [one.first_s for one in whole],
        [gap for one in whole for gap in one.gaps_s],
        [seconds for seconds in per_token if seconds is not None],
        [one.whole_s for one in whole],
    )
    return dict(zip(LATENCIES, map(sorted, found), strict=True))


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that ``share`` of all do not exceed, between its neighbours where it falls there.

    Args:
        ordered: Sorted; never empty.
        share: 0 to 1.
    """
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def spelt(share: float) -> str:
    """``p99`` for 0.99."""
    return f"p{share * 100:g}"


def tokens_over_time(run: ServeRun, num_slices: int) -> list[float]:
    """Output tokens per second in each of so many equal slices of the run.

    An answer's tokens are spread evenly over its events: a server may send several in one.
    """
    width_s = run.seconds / num_slices
    counts = [0.0] * num_slices
    for answer in run.answers:
        if answer.error is None:
            each = answer.num_output / len(answer.text_s)
            for come_s in answer.text_s:
                place = int((come_s - run.begun_s) / width_s)
                counts[min(place, num_slices - 1)] += each
    return [count / width_s for count in counts]


def errors_of(run: ServeRun) -> dict[str, int]:
    """Each error and how often it came, the most frequent first."""
    counts: dict[str, int] = {}
    for answer in run.answers:
        if answer.error is not None:
            counts[answer.error] = counts.get(answer.error, 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: -pair[1]))


def _at_once(run: ServeRun) -> float:
    """Requests under way on average, over the whole run."""
    return sum(answer.ended_s - answer.sent_s for answer in run.answers) / run.seconds
