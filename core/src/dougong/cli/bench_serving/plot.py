"""A measurement of a server as an SVG drawing: rate over time, latencies as cumulative shares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from dougong.cli.bench_serving.results import latencies_of, percentile, tokens_over_time
from dougong.cli.bench_serving.run import ServeRun
from dougong.cli.bench_serving.workload import ServeWorkload
from dougong.cli.new_file import check_new_file
from dougong.errors import ConfigError

_WIDTH, _HEIGHT = 880, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 20, 50, 45
_NUM_SLICES = 80
_NUM_POINTS = 200
_NUM_TICKS = 4
_COLOURS = ("#1f6feb", "#d1242f", "#1a7f37")

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Chart:
    """One drawing; both axes begin at 0.

    Attributes:
        title: Above it.
        x_name: Below the horizontal axis.
        lines: Name → points, by rising x.
    """

    title: str
    x_name: str
    lines: dict[str, Points]


def check_plot(file: Path | None) -> None:
    """Refuse before any work what could not be drawn after it.

    Raises:
        ConfigError: It is no SVG file, it is there already, or it has no folder.
    """
    if file is None:
        return
    if file.suffix != ".svg":
        raise ConfigError(f"--plot {file}: the drawing is an SVG. Name the file NAME.svg.")
    check_new_file(file, kept="a drawing", instead="leave --plot out", option="--plot")


def svg_of(run: ServeRun, work: ServeWorkload) -> str:
    """The drawing of a run in which some answer was whole."""
    rates = tokens_over_time(run, _NUM_SLICES)
    slice_s = run.seconds / _NUM_SLICES
    whole = [answer for answer in run.answers if answer.error is None]
    charts = [
        Chart(
            f"{work.model}: {work.num_requests} requests of {work.input_len} + {work.output_len} "
            "tokens, output tokens/s",
            "s",
            {"": [(slice_s * (place + 0.5), rate) for place, rate in enumerate(rates)]},
        )
    ]
    for name, values in latencies_of(whole).items():
        if values:
            title = f"{name.replace('_', ' ')}: share of all that took no longer, %"
            charts.append(Chart(title, "ms", {"": _shares(values)}))
    return drawing(charts)


def drawing(charts: Sequence[Chart]) -> str:
    """Charts below one another."""
    height = _HEIGHT * len(charts)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    for place, chart in enumerate(charts):
        parts += [f'<g transform="translate(0 {place * _HEIGHT})">', *_chart(chart), "</g>"]
    return "\n".join([*parts, "</svg>\n"])


def _shares(ordered: Sequence[float]) -> Points:
    """Milliseconds and percent."""
    shares = [place / _NUM_POINTS for place in range(_NUM_POINTS + 1)]
    return [(percentile(ordered, share) * 1e3, share * 100) for share in shares]


def _chart(chart: Chart) -> Iterable[str]:
    points = [point for line in chart.lines.values() for point in line]
    most_x = max(x for x, _ in points) or 1.0
    most_y = max(y for _, y in points) or 1.0
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    bottom = _TOP + height
    yield f'<text x="{_LEFT}" y="24" font-weight="bold">{escape(chart.title)}</text>'
    for tick in range(_NUM_TICKS + 1):
        share = tick / _NUM_TICKS
        x, y = _LEFT + share * width, bottom - share * height
        yield f'<path d="M{_LEFT} {y:.1f}H{_LEFT + width}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{most_y * share:.4g}</text>'
        yield (
            f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{most_x * share:.4g}</text>'
        )
    yield (
        f'<text x="{_LEFT + width}" y="{bottom + 38}" text-anchor="end">'
        f"{escape(chart.x_name)}</text>"
    )
    for place, (name, line) in enumerate(chart.lines.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        path = " ".join(
            f"{_LEFT + x / most_x * width:.1f},{bottom - y / most_y * height:.1f}" for x, y in line
        )
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        if name:
            x = _LEFT + 12 + 220 * place
            yield f'<text x="{x}" y="42" fill="{colour}">{escape(name)}</text>'
