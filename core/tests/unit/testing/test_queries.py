"""The checker finds nothing in honest platforms, and each planted fault."""

from __future__ import annotations

import itertools
import platform as machine
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch

from dougong.contracts import (
    AttentionRequest,
    Claims,
    DeviceFacts,
    KVCacheSpec,
    KVLayout,
    Support,
)
from dougong.cpu.platform import CpuPlatform
from dougong.reference import ReferenceAttentionBackend
from dougong.testing.null_platform import NullPlatform, NullRuntime
from dougong.testing.queries import query_problems


def test_the_cpu_platform_answers_the_same_every_time() -> None:
    assert query_problems(CpuPlatform(), 0, [machine.machine()]) == []


def test_the_null_platform_answers_the_same_every_time() -> None:
    assert query_problems(NullPlatform(), 0, ["null1"]) == []


class _Counting(NullPlatform):
    """Facts that count how often they were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = itertools.count()

    def facts(self, device_index: int) -> DeviceFacts:
        return replace(super().facts(device_index), num_compute_units=next(self._asked))


class _Freeing(_Counting):
    """Only its free memory changes."""

    def facts(self, device_index: int) -> DeviceFacts:
        facts = super().facts(device_index)
        return replace(facts, memory_free_bytes=facts.num_compute_units, num_compute_units=0)


class _Lazy(_Counting):
    """Says that its facts open a context, so that they are asked once the device is set."""

    @property
    def facts_open_context(self) -> bool:
        return True


class _Growing(NullPlatform):
    """Claims what it was asked for last."""

    _last = ""

    def claims(self, arch: str) -> Claims:
        features = frozenset({self._last} - {""})
        self._last = f"asked.{arch}"
        return replace(super().claims(arch), features=features)


class _Waking(NullPlatform):
    """Other claims once the device is set."""

    def claims(self, arch: str) -> Claims:
        return replace(super().claims(arch), graph_capture=_WakingRuntime.is_set)

    def __init__(self) -> None:
        self._runtime = _WakingRuntime()
        _WakingRuntime.is_set = False


class _WakingRuntime(NullRuntime):
    is_set = False

    def set_device(self, device_index: int) -> None:
        type(self).is_set = True


class _Failing(NullPlatform):
    def get_worker_cls(self) -> str:
        raise OSError("boom")


class _Wrong(NullPlatform):
    def facts(self, device_index: int) -> DeviceFacts:
        return None  # type: ignore[return-value]  # what the checker must find


class _Remembering(ReferenceAttentionBackend):
    name = "null/remembering"
    _seen: int = 0

    def supports(self, request: AttentionRequest) -> Support:
        self._seen += 1
        return Support.yes() if self._seen % 2 else Support.no("not every other time")

    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        self._seen += 1
        return replace(super().kv_layout(spec), reserved_blocks=self._seen % 3)


class _WithRemembering(NullPlatform):
    def get_attn_backends(self) -> Mapping[str, str]:
        return {"null/remembering": f"{__name__}:_Remembering"}


class _WithMissing(NullPlatform):
    def get_attn_backends(self) -> Mapping[str, str]:
        return {"null/none": "dougong.nowhere:Nothing"}


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (_Counting, ["facts(0), asked again, answered"]),
        (_Lazy, ["facts(0), asked after the device was set, answered"]),
        (_Growing, ["claims('null1'), asked again, answered"]),
        (_Waking, ["claims('null1'), asked after the device was set, answered"]),
        (_Failing, ["get_worker_cls() raised OSError: boom"]),
        (_Wrong, ["facts(0) raised TypeError: it answered None, not DeviceFacts"]),
        (_WithRemembering, ["null/remembering: supports(", "null/remembering: kv_layout("]),
        (_WithMissing, ["its backends cannot be asked: ModuleNotFoundError"]),
    ],
)
def test_each_planted_fault_is_found(kind: type[NullPlatform], told: list[str]) -> None:
    problems = query_problems(kind(), 0, ["null1"])
    for part in told:
        assert any(problem.startswith(part) for problem in problems), problems


def test_free_memory_may_change() -> None:
    assert query_problems(_Freeing(), 0, ["null1"]) == []


def test_a_device_that_cannot_be_set_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: NullRuntime, device_index: int) -> None:
        raise RuntimeError("no such device")

    monkeypatch.setattr(NullRuntime, "set_device", refuse)
    assert query_problems(NullPlatform(), 0, []) == [
        "set_device(0) raised RuntimeError: no such device"
    ]


def test_a_question_that_opens_a_context_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Module:
        is_open = False

        @classmethod
        def is_initialized(cls) -> bool:
            return cls.is_open

    class Opening(NullPlatform):
        def claims(self, arch: str) -> Claims:
            Module.is_open = True
            return super().claims(arch)

    monkeypatch.setattr(torch, "get_device_module", lambda device_type: Module)
    assert query_problems(NullPlatform(), 0, []) == []
    (problem,) = query_problems(Opening(), 0, [])
    assert "opened a device context before" in problem
