from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dougong import LLM
from dougong.cli.bench_workloads import Workload, run_latency, run_throughput
from tests.support.graph_platform import install_graph_platform
from tests.support.null_engine import NULL_OPTIONS, NullModels
from tests.support.tiny_models import write_tiny_checkpoint


def workload(kind: str) -> Workload:
    return Workload(kind=kind, model="m", num_requests=12, input_len=6, output_len=5)


def test_prompts_are_the_same_every_time_and_all_different() -> None:
    prompts = workload("throughput").prompts(288)
    assert prompts == workload("throughput").prompts(288)
    assert len({tuple(prompt) for prompt in prompts}) == 12
    assert all(len(prompt) == 6 and 0 <= min(prompt) <= max(prompt) < 288 for prompt in prompts)


def test_throughput_counts_what_was_asked_for(null_models: NullModels) -> None:
    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        results = run_throughput(llm, workload("throughput"))
    assert results["output_tokens_per_s"] * results["total_s"] == pytest.approx(12 * 5)
    assert results["num_steps"] == 5
    assert 0 <= results["overhead_fraction"] <= 1


def test_steps_that_graphs_served_are_counted_without_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_graph_platform(tmp_path / "site", monkeypatch)
    model = str(write_tiny_checkpoint(tmp_path / "model"))
    options: dict[str, Any] = {
        "max_num_seqs": 12,
        "max_num_batched_tokens": 72,
        "num_kv_blocks": 100,
    }
    with LLM(model, platform="graphs", graph_sizes="8", graph_level="decode", **options) as llm:
        results = run_throughput(llm, workload("throughput"))
    assert results["num_graph_steps"] == 0
    assert results["num_steps_above_graphs"] == results["num_steps"] == 5
    assert results["num_padding_tokens"] == 0


def test_latency_knows_the_slow_tenth(null_models: NullModels) -> None:
    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        results = run_latency(llm, workload("latency"))
    assert results["num_steps"] == 12 * 5
    for name in ("time_to_first_token_s", "time_per_token_s"):
        assert results[f"p90_{name}"] >= results[f"median_{name}"] > 0
