from __future__ import annotations

from typing import Any

import pytest
import torch

from dougong.contracts import (
    CachedRequestData,
    ConfigView,
    GrammarMask,
    KernelReport,
    KVCacheConfig,
    NewRequestData,
    RankPlan,
    SamplingParams,
    SchedulerOutput,
    WorkerContext,
    WorkerState,
)
from dougong.errors import KernelFault, PluginError
from dougong.executor import UniprocExecutor
from dougong.testing.null_platform import NullPlatform
from dougong.testing.null_worker import NullWorker

STEP = SchedulerOutput(
    step_id=0,
    scheduled_new_reqs=[
        NewRequestData("a", [5, 6], 2, SamplingParams(temperature=0.0), frozenset(), ([0],), 0)
    ],
    scheduled_cached_reqs=CachedRequestData(),
    num_scheduled_tokens={"a": 2},
    total_num_scheduled_tokens=2,
)


PLAN = RankPlan(block_size=4, attention=(), ops=())


def make(**orders: Any) -> UniprocExecutor:
    config = ConfigView(
        model="m", hf_config={"null": orders}, block_size=16, kv_cache_dtype="float32"
    )
    context = WorkerContext(platform=NullPlatform(), config=config, model_path="m")
    return UniprocExecutor(NullWorker, context)


def state(executor: UniprocExecutor) -> WorkerState:
    return executor._worker.state


def started(**orders: Any) -> UniprocExecutor:
    executor = make(**orders)
    executor.open()
    loaded = executor.load(PLAN)
    executor.initialize(KVCacheConfig(8, tuple(group for group, _ in loaded.groups)))
    return executor


def test_a_worker_goes_through_its_life_in_order() -> None:
    executor = make(available_bytes=1234)
    assert executor.open() == (KernelReport(),)
    assert state(executor) is WorkerState.DEVICE_READY
    loaded = executor.load(PLAN)
    assert state(executor) is WorkerState.MODEL_LOADED
    assert [group.spec.block_size for group, _ in loaded.groups] == [4]
    assert loaded.available_bytes == 1234
    assert loaded.weight_bytes == 0
    executor.initialize(KVCacheConfig(8, tuple(group for group, _ in loaded.groups)))
    assert state(executor) is WorkerState.RUNNING
    executor.health()
    assert executor.collect() == ({},)
    executor.shutdown()
    executor.shutdown()
    assert state(executor) is WorkerState.SHUT_DOWN


def test_a_step_is_run_to_its_end() -> None:
    output = started().execute(STEP)
    assert output.step_id == 0
    assert output.req_ids == ["a"]


def test_a_mask_is_asked_for_once_the_forward_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    submit = NullWorker.submit

    def noted(self: NullWorker, *arguments: Any) -> Any:
        order.append("forward")
        return submit(self, *arguments)

    def mask() -> GrammarMask:
        order.append("mask")
        bits = torch.zeros((1, 9), dtype=torch.int32)
        bits[0, 2] = 1 << 3
        return GrammarMask(("a",), bits)

    monkeypatch.setattr(NullWorker, "submit", noted)
    executor = started()
    assert executor.takes_grammar_masks
    assert executor.execute(STEP, mask).sampled_token_ids == [[67]]
    assert order == ["forward", "mask"]


def test_a_failed_step_says_device_rank_and_step() -> None:
    executor = started(fail_at_step=0)
    with pytest.raises(KernelFault) as caught:
        executor.execute(STEP)
    assert (caught.value.device_index, caught.value.rank, caught.value.step_id) == (0, 0, 0)


def test_a_worker_without_the_call_that_its_platform_promised_is_its_vendors_fault() -> None:
    with pytest.raises(PluginError, match="NullWorker has no set_lora"):
        make().set_lora(0, None)
