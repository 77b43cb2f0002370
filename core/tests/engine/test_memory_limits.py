"""A container's quota is respected, and the log says which limit counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dougong import LLM
from dougong.contracts import DeviceFacts
from dougong.errors import ConfigError
from dougong.testing.null_platform import NullPlatform
from tests.support.null_engine import NullModels

GIB = 1024**3


def set_quota(monkeypatch: pytest.MonkeyPatch, quota_bytes: int | None) -> None:
    plain = NullPlatform.facts

    def facts(self: NullPlatform, device_index: int) -> DeviceFacts:
        return replace(
            plain(self, device_index),
            memory_total_bytes=64 * GIB,
            memory_free_bytes=64 * GIB,
            memory_quota_bytes=quota_bytes,
            memory_quota_source="/sys/fs/limits/memory.max",
        )

    monkeypatch.setattr(NullPlatform, "facts", facts)


def options(null_models: NullModels) -> str:
    return null_models.write(available_bytes=100 * GIB)


def test_an_automatic_size_fits_the_quota(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_quota(monkeypatch, 2**20)
    with LLM(options(null_models), platform="null", block_size=32, max_num_seqs=10**6,
             max_num_batched_tokens=10**6) as llm:  # fmt: skip
        memory = llm.report.memory
        assert memory.kv_cache > 0
        assert memory.weights + memory.kv_cache <= 2**20
        line = next(d.reason for d in llm.report.decisions if d.field == "memory_limit")
        assert "64.00 GiB" in line
        assert "memory.max" in line
        assert "the quota counts" in line


def test_an_explicit_size_above_the_quota_is_refused_with_both_numbers(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_quota(monkeypatch, 2 * GIB)
    with pytest.raises(ConfigError) as caught:
        LLM(options(null_models), platform="null", kv_cache_memory_bytes=3 * GIB)
    assert "3.00 GiB" in str(caught.value)
    assert "2.00 GiB" in str(caught.value)


def test_without_a_quota_the_machine_counts(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_quota(monkeypatch, None)
    with LLM(options(null_models), platform="null", kv_cache_memory_bytes=2**20) as llm:
        line = next(d.reason for d in llm.report.decisions if d.field == "memory_limit")
        assert "the machine memory counts" in line


def test_what_a_rank_has_left_bounds_an_explicit_size_too(
    null_models: NullModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_quota(monkeypatch, None)
    with pytest.raises(ConfigError, match="available"):
        LLM(null_models.write(available_bytes=1000), platform="null", num_kv_blocks=100)
