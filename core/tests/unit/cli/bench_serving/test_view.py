from __future__ import annotations

import pytest

from dougong.cli.bench_record import BenchRecord
from dougong.cli.bench_serving.results import results_of
from dougong.cli.bench_serving.run import ServeRun
from dougong.cli.bench_serving.view import columns, histogram, print_serve_record
from dougong.cli.bench_serving.workload import ServeWorkload
from tests.unit.cli.bench_serving.test_results import RUN, answer


def record(run: ServeRun) -> BenchRecord:
    return BenchRecord(
        workload=ServeWorkload(model="[m]", concurrency=4).to_json(),
        platform="http://here",
        dtype="",
        results=results_of(run),
        memory={},
        versions={"server": "1.2"},
        decisions={},
    )


def test_tables_and_plots_say_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    print_serve_record(record(RUN), RUN)
    shown = capsys.readouterr().out
    assert "[m] at http://here, completions, 64 requests of 128 + 128 tokens" in shown
    assert "inf per second, 4 at once" in shown
    assert "p99" in shown
    assert "time to first token" in shown
    assert "1 x gone" in shown
    assert "server 1.2" in shown
    assert "█" in shown


def test_a_run_without_text_is_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    run = ServeRun(0.0, [answer(1.0, error="x")], 0.0)
    print_serve_record(record(run), run)
    assert "1 x x" in capsys.readouterr().out


def test_columns_are_as_high_as_their_values() -> None:
    assert columns([0.0, 1.0, 4.0, 8.0]) == " ▁▄█"
    assert columns([0.0, 0.0]) == "  "


def test_bars_count_every_value_and_the_slowest_share_the_last_one() -> None:
    values = [0.001 * place for place in range(200)] + [9.0]
    rows = histogram(values, 4)
    counts = [int(row.split()[-1]) for row in rows]
    assert sum(counts) == 201
    assert len(rows) == 4
    assert max(counts) < 60
    assert [int(row.split()[-1]) for row in histogram([0.5], 3)] == [1, 0, 0]
