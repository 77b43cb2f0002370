from __future__ import annotations

from dataclasses import replace

import pytest

from dougong.cli.bench_record import compare
from dougong.cli.bench_view import print_comparison, print_record
from tests.unit.cli.test_bench_record import RECORD

WORK = {"kind": "latency", "model": "m[x]", "num_requests": 3, "input_len": 1, "output_len": 2}
RESULTS = {"output_tokens_per_s": 10.0, "gap_s": 0.002, "total_s": 2.0, "overhead_fraction": 0.5}


def test_numbers_are_shown_with_their_units(capsys: pytest.CaptureFixture[str]) -> None:
    print_record(replace(RECORD, workload=WORK, results=RESULTS))
    shown = capsys.readouterr().out
    for text in ("10.0 /s", "2.0 ms", "2.00 s", "50.00%", "m[x]", "0.00 GiB"):
        assert text in shown


def test_a_comparison_shows_both_versions(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(compare(RECORD, RECORD), RECORD, RECORD)
    shown = capsys.readouterr().out
    assert shown.count("dougong 0.1.0") == 2
    assert "1.000" in shown
