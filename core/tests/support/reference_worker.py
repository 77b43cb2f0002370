"""A reference worker on the CPU, and the steps it is given by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from dougong.checkpoint import read_config, resolve_reference
from dougong.contracts import (
    ConfigView,
    Fault,
    KernelFault,
    KVCacheConfig,
    LoadReport,
    Platform,
    RankPlan,
    Registration,
    WorkerContext,
)
from dougong.cpu.platform import CpuPlatform
from dougong.messages import CachedRequestData, NewRequestData, SamplingParams, SchedulerOutput
from dougong.reference import ReferenceWorker
from tests.support.plans import PlanOptions, plan_for_checkpoint

GREEDY = SamplingParams(temperature=0.0)


class PlainPlatform(CpuPlatform):
    """The CPU with the reference backend alone, and one exception it knows."""

    def get_attn_backends(self) -> dict[str, str]:
        return {"reference/torch": "dougong.reference:ReferenceAttentionBackend"}

    def classify_error(self, exc: BaseException) -> Fault | None:
        if isinstance(exc, ZeroDivisionError):
            return Fault(KernelFault, "kernel 7 divided by zero")
        return super().classify_error(exc)


def make_worker(
    checkpoint: Path,
    *,
    platform: Platform | None = None,
    registrations: Sequence[Registration] = (),
    worker_cls: type[ReferenceWorker] = ReferenceWorker,
    **changes: object,
) -> ReferenceWorker:
    """A worker for a tiny checkpoint, on `PlainPlatform` if not told otherwise."""
    hf_config = read_config(resolve_reference(str(checkpoint)))
    values: dict[str, object] = {
        "model": str(checkpoint),
        "architecture": hf_config["architectures"][0],
        "hf_config": hf_config,
        "dtype": "float32",
        "kv_cache_dtype": "float32",
        "max_model_len": 64,
        "block_size": 16,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 100,
        "device_memory_utilization": 0.5,
    }
    context = WorkerContext(
        platform=platform or PlainPlatform(),
        config=ConfigView(**(values | changes)),  # type: ignore[arg-type]  # built by name
        model_path=str(checkpoint),
        registrations=tuple(registrations),
    )
    return worker_cls(context)


def plan_for(worker: ReferenceWorker, **options: Unpack[PlanOptions]) -> RankPlan:
    """A plan for the worker's checkpoint."""
    context = worker.context
    return plan_for_checkpoint(
        context.model_path,
        registrations=context.registrations,
        max_model_len=context.config.max_model_len,
        **options,
    )


def bring_up(worker: ReferenceWorker, plan: RankPlan, num_blocks: int = 16) -> LoadReport:
    """From the first call to the first step."""
    worker.init_device()
    report = worker.load_model(plan)
    groups = tuple(group for group, _ in worker.get_kv_cache_groups())
    worker.initialize_kv_cache(KVCacheConfig(num_blocks, groups))
    worker.warm_up()
    return report


def start(
    step_id: int, *requests: tuple[str, list[int], list[int], int], num_groups: int = 1
) -> SchedulerOutput:
    """A step of new requests: name, prompt, blocks, tokens to compute."""
    new = [
        NewRequestData(
            request_id=name,
            token_ids=tokens,
            num_prompt_tokens=len(tokens),
            sampling_params=GREEDY,
            stop_token_ids=frozenset(),
            block_ids=(blocks,) * num_groups,
            num_computed_tokens=0,
        )
        for name, tokens, blocks, _ in requests
    ]
    scheduled = {name: count for name, _, _, count in requests}
    return SchedulerOutput(step_id, new, CachedRequestData(), scheduled, sum(scheduled.values()))


def go_on(step_id: int, **counts: int) -> SchedulerOutput:
    """A step of requests that are there: name → tokens to compute."""
    cached = CachedRequestData(list(counts), [None] * len(counts))
    return SchedulerOutput(step_id, [], cached, counts, sum(counts.values()))
