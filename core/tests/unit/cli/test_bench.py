from __future__ import annotations

import json
from pathlib import Path

import pytest

from dougong.cli.bench import _requests_at_once
from dougong.cli.bench_workloads import Workload
from tests.support.command_line import run_command
from tests.support.null_engine import NullModels

SMALL = ("--num-requests", "3", "--input-len", "8", "--output-len", "4", "--platform", "null")
Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("kind", ["throughput", "latency"])
def test_a_measurement_says_what_was_run_and_what_came_out(
    null_models: NullModels, capsys: Capture, kind: str
) -> None:
    model = null_models.write()
    assert run_command("bench", kind, "--json", "--model", model, *SMALL) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["workload"] == {
        "kind": kind, "model": model, "num_requests": 3, "input_len": 8, "output_len": 4,
    }  # fmt: skip
    assert record["results"]["output_tokens_per_s"] > 0
    assert record["results"]["num_steps"] == (4 if kind == "throughput" else 12)
    assert record["memory"]["peak_host_bytes"] > 0
    assert set(record["versions"]) == {"dougong", "contract", "python", "torch"}
    assert record["platform"] == "null (Null)"


def test_a_kept_result_is_compared_with_ratios(
    null_models: NullModels, capsys: Capture, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.json"
    command = ("bench", "throughput", "--model", null_models.write(), *SMALL)
    assert run_command(*command, "--save", str(kept)) == 0
    capsys.readouterr()
    assert run_command(*command, "--against", str(kept)) == 0
    shown = capsys.readouterr().out
    assert "ratio" in shown
    assert "earlier: dougong" in shown
    assert run_command(*command, "--against", str(kept), "--json") == 0
    assert json.loads(capsys.readouterr().out)["against"]["num_steps"] == 1.0


def test_other_work_is_refused_before_anything_is_measured(
    null_models: NullModels, capsys: Capture, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.json"
    command = ("bench", "throughput", "--model", null_models.write(), *SMALL)
    assert run_command(*command, "--save", str(kept)) == 0
    capsys.readouterr()
    assert run_command(*command, "--output-len", "5", "--against", str(kept)) == 2
    assert "output_len: 5 now, 4 there" in capsys.readouterr().err


def test_a_small_token_budget_bounds_the_requests_at_once_and_the_report_says_so(
    null_models: NullModels, capsys: Capture
) -> None:
    command = ("bench", "throughput", "--json", "--model", null_models.write(), *SMALL)
    assert run_command(*command, "--num-requests", "32", "--max-num-batched-tokens", "16") == 0
    assert json.loads(capsys.readouterr().out)["decisions"]["max_num_seqs"] == 16


def test_what_the_user_set_twice_over_is_refused_in_the_users_words(
    null_models: NullModels, capsys: Capture
) -> None:
    command = ("bench", "throughput", "--model", null_models.write(), *SMALL)
    assert run_command(*command, "--max-num-batched-tokens", "16", "--max-num-seqs", "32") == 2
    assert "max_num_batched_tokens=16 is below max_num_seqs=32" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "num_requests", "at_once"),
    [("throughput", 5, 5), ("throughput", 999, 256), ("latency", 5, 1)],
)
def test_requests_at_once_are_the_commands_choice_with_a_reason(
    kind: str, num_requests: int, at_once: int
) -> None:
    work = Workload(kind=kind, model="m", num_requests=num_requests, input_len=1, output_len=1)
    chosen = _requests_at_once(work)
    assert (chosen.value, chosen.author) == (at_once, f"command bench {kind}")
    if num_requests > at_once > 1:
        assert "--max-num-seqs" in chosen.reason
