"""The CPU worker: memory computed instead of measured, others' memory left alone, large pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dougong.checkpoint import read_config, resolve_reference
from dougong.contracts import ConfigView, KVCacheConfig, WorkerContext
from dougong.cpu import worker as cpu_worker
from dougong.cpu.memory import HostMemory
from dougong.cpu.platform import CpuPlatform
from dougong.cpu.worker import CpuWorker
from tests.support.plans import plan_for_checkpoint
from tests.support.tiny_models import write_tiny_checkpoint

GIB = 1 << 30


@pytest.fixture
def worker(tmp_path: Path) -> CpuWorker:
    folder = str(write_tiny_checkpoint(tmp_path))
    view = ConfigView(
        model=folder,
        architecture="LlamaForCausalLM",
        hf_config=read_config(resolve_reference(folder)),
        dtype="float32",
        kv_cache_dtype="float32",
        max_model_len=64,
        block_size=16,
        max_num_seqs=4,
        max_num_batched_tokens=64,
        device_memory_utilization=0.5,
    )
    worker = CpuWorker(WorkerContext(platform=CpuPlatform(), config=view, model_path=folder))
    worker.init_device()
    worker.load_model(plan_for_checkpoint(folder, max_model_len=64, backend="cpu/native"))
    return worker


def available(monkeypatch: pytest.MonkeyPatch, worker: CpuWorker, memory: HostMemory) -> int:
    monkeypatch.setattr(cpu_worker, "read_memory", lambda: memory)
    monkeypatch.setattr(cpu_worker, "resident_bytes", lambda: GIB)
    return worker.determine_available_memory()


def test_what_others_use_is_not_taken_from_the_share_while_there_is_room(
    monkeypatch: pytest.MonkeyPatch, worker: CpuWorker
) -> None:
    step_bytes = worker.estimate_step_bytes()
    busy = HostMemory(total_bytes=8 * GIB, free_bytes=4 * GIB)
    assert available(monkeypatch, worker, busy) == 3 * GIB - step_bytes


def test_never_more_than_is_free_and_never_below_nothing(
    monkeypatch: pytest.MonkeyPatch, worker: CpuWorker
) -> None:
    step_bytes = worker.estimate_step_bytes()
    full = HostMemory(total_bytes=8 * GIB, free_bytes=GIB)
    assert available(monkeypatch, worker, full) == GIB - step_bytes
    assert available(monkeypatch, worker, replace(full, free_bytes=0)) == 0


def test_a_quota_is_the_limit_whose_share_counts(
    monkeypatch: pytest.MonkeyPatch, worker: CpuWorker
) -> None:
    step_bytes = worker.estimate_step_bytes()
    memory = HostMemory(8 * GIB, 4 * GIB, quota_bytes=4 * GIB, quota_source="memory.max")
    assert available(monkeypatch, worker, memory) == GIB - step_bytes


def test_a_step_takes_more_with_more_tokens_and_more_sequences(worker: CpuWorker) -> None:
    base, config = worker.estimate_step_bytes(), worker.config
    for larger in (replace(config, max_num_batched_tokens=128), replace(config, max_num_seqs=8)):
        object.__setattr__(worker.context, "config", larger)
        assert worker.estimate_step_bytes() > base


def test_large_pages_are_asked_for_before_the_first_write(
    monkeypatch: pytest.MonkeyPatch, worker: CpuWorker
) -> None:
    asked: list[int] = []

    def note(library: object, tensor: torch.Tensor) -> None:
        asked.append(tensor.data_ptr())

    monkeypatch.setattr(cpu_worker, "advise_huge_pages", note)
    groups = tuple(group for group, _ in worker.get_kv_cache_groups())
    worker.initialize_kv_cache(KVCacheConfig(8, groups))
    assert len(set(asked)) == 4  # keys and values of two layers
