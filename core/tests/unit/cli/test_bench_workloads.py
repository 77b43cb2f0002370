from __future__ import annotations

import pytest

from dougong import LLM
from dougong.cli.bench_workloads import Workload, run_latency, run_throughput
from tests.support.null_engine import NULL_OPTIONS, NullModels


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


def test_latency_knows_the_slow_tenth(null_models: NullModels) -> None:
    with LLM(null_models.write(), **NULL_OPTIONS) as llm:
        results = run_latency(llm, workload("latency"))
    assert results["num_steps"] == 12 * 5
    for name in ("time_to_first_token_s", "time_per_token_s"):
        assert results[f"p90_{name}"] >= results[f"median_{name}"] > 0
