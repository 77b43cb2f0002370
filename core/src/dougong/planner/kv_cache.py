"""The KV cache as far as it is known before memory is measured; sizes that cannot be are
refused."""

from __future__ import annotations

from collections.abc import Sequence

from dougong.config.decision import USER
from dougong.config.memory import GIB, describe_limit
from dougong.contracts.kv_cache import dtype_bytes
from dougong.planner.execution_plan import AttentionPlan, KVCachePlanned, WeightPlan
from dougong.planner.findings import Findings
from dougong.planner.inputs import PlanInputs
from dougong.planner.layout_rules import most_blocks
from dougong.planner.lora import lora_bytes
from dougong.planner.weights import loaded_bytes


def plan_kv_cache(
    inputs: PlanInputs,
    attention: Sequence[AttentionPlan],
    weights: Sequence[WeightPlan],
    block_size: int,
    findings: Findings,
) -> KVCachePlanned:
    """Bytes of a block over all layers, what alignment wastes, and how many blocks there can be."""
    layouts = [(len(plan.assignment.layer_indices), plan.assignment.layout) for plan in attention]
    block_bytes = sum(count * layout.block_bytes for count, layout in layouts)
    used_bytes = sum(
        count * sum(buffer.block_bytes for buffer in layout.buffers) for count, layout in layouts
    )
    planned = KVCachePlanned(
        dtype=inputs.config.kv_cache.dtype,
        block_size=block_size,
        block_bytes=block_bytes,
        padding_bytes=block_bytes - used_bytes,
        reserved_blocks=max((layout.reserved_blocks for _, layout in layouts), default=0),
        num_blocks=_num_blocks(inputs, attention, weights, block_size, block_bytes),
    )
    _check(inputs, attention, weights, planned, findings)
    return planned


def _num_blocks(
    inputs: PlanInputs,
    attention: Sequence[AttentionPlan],
    weights: Sequence[WeightPlan],
    block_size: int,
    block_bytes: int,
) -> int | None:
    asked = inputs.config.kv_cache
    if asked.asked_blocks is not None:
        return asked.asked_blocks
    if not block_bytes:
        return None
    if asked.asked_bytes is not None:
        return asked.asked_bytes // block_bytes
    weight_bytes = _lasting_bytes(inputs, weights)
    if weight_bytes is None:
        return None
    left = max(0, inputs.config.memory.budget_bytes - weight_bytes)
    return min(left // block_bytes, _most_blocks(attention, block_size))


def _most_blocks(attention: Sequence[AttentionPlan], block_size: int) -> int:
    return min(most_blocks(plan.assignment.layout, block_size) for plan in attention)


def _check(
    inputs: PlanInputs,
    attention: Sequence[AttentionPlan],
    weights: Sequence[WeightPlan],
    planned: KVCachePlanned,
    findings: Findings,
) -> None:
    """A size that was asked for must hold a token, fit, and be numbered by slots."""
    asked, memory = inputs.config.kv_cache, inputs.config.memory
    num_blocks, author = planned.num_blocks, asked.asked_by or USER
    if num_blocks is None or not attention:
        return
    if not asked.asked_by and _weights_are_too_large(inputs):
        return  # which `dougong.config.resolve` tells; no size of the cache would help
    what = f"a KV cache of {num_blocks} blocks"
    if asked.asked_blocks is not None:
        what = f"num_kv_blocks={asked.asked_blocks}"
    elif asked.asked_bytes is not None:
        what = f"kv_cache_memory_bytes={asked.asked_bytes}, which is {num_blocks} blocks,"
    if num_blocks - planned.reserved_blocks < len(attention):
        findings.refuse(
            f"{what} holds no token: a block takes {planned.block_bytes} bytes over all layers, "
            f"the KV layout reserves {planned.reserved_blocks} blocks, and one token needs "
            f"{len(attention)}. Give the KV cache more memory, or use a narrower kv_cache_dtype or "
            "a smaller block_size.",
            author=author,
        )
    if num_blocks > (most := _most_blocks(attention, planned.block_size)):
        findings.refuse(
            f"{what} is more than the slots of the KV layout can number: {most} blocks of "
            f"{planned.block_size} tokens. Ask for at most that.",
            author=author,
        )
    weight_bytes, kv_bytes = _lasting_bytes(inputs, weights), num_blocks * planned.block_bytes
    if weight_bytes is not None and weight_bytes + kv_bytes > memory.budget_bytes:
        fitting = max(0, memory.budget_bytes - weight_bytes) // planned.block_bytes
        findings.refuse(
            f"{what} takes {kv_bytes / GIB:.2f} GiB; with {weight_bytes / GIB:.2f} GiB of "
            f"{_lasting(inputs)} that is more than the {memory.budget_bytes / GIB:.2f} GiB that "
            f"may be used ({memory.utilization:g} of {describe_limit(memory)}). Ask for at most "
            f"{fitting} blocks, or leave the size unset.",
            author=author,
        )


def _lasting_bytes(inputs: PlanInputs, weights: Sequence[WeightPlan]) -> int | None:
    """Of weights and adapters' slots; ``None``: nobody can say yet."""
    weight_bytes = loaded_bytes(inputs, weights)
    return None if weight_bytes is None else weight_bytes + lora_bytes(inputs)


def _lasting(inputs: PlanInputs) -> str:
    return "weights" if inputs.config.lora is None else "weights and adapters"


def _weights_are_too_large(inputs: PlanInputs) -> bool:
    config = inputs.config
    weight_bytes = config.model.weight_bytes(dtype_bytes(config.compute.dtype))
    return weight_bytes >= config.memory.budget_bytes
