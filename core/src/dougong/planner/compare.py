"""Two plans: what differs that an operator would want to know; what is measured anew does not
count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dougong.config.decision import USER
from dougong.config.same_choice import is_same_choice
from dougong.planner.compare_attention import compare_attention, compare_kv_cache
from dougong.planner.compare_ops import compare_ops, compare_wheels
from dougong.planner.difference import Difference, changed
from dougong.planner.execution_plan import ExecutionPlan, WeightPlan

_MEASURED = frozenset(
    {"memory_limit", "num_kv_blocks", "device_memory_utilization", "graph_memory_bytes"}
)
"""Decisions that follow from memory as it is now, unless the user fixed them."""

_SIZES = frozenset(
    {
        "num_kv_blocks",
        "kv_cache_memory_bytes",
        "device_memory_utilization",
        "graph_memory_bytes",
    }
)
"""Options that may be given anew: how much of a device is used changes nothing of what runs."""

_NO_VALUES = frozenset({"plan", "strict", "lora"})
"""Options that say how to start, and nothing about what runs."""

_ELSEWHERE = frozenset(
    {"model", "revision", "platform", "devices", "dtype", "kv_cache_dtype", "block_size"}
)
"""Options whose outcome another part of the plan tells."""


def differences(old: ExecutionPlan, new: ExecutionPlan) -> tuple[Difference, ...]:
    """What differs between two plans, in the order of a plan's parts.

    Memory, the number of KV blocks, the device's name and the wording of reasons do not count;
    versions of wheels and kernel libraries do.
    """
    parts = (
        _identity,
        _decisions,
        compare_attention,
        compare_kv_cache,
        compare_ops,
        _weights,
        _mode,
        compare_wheels,
        _fallbacks,
    )
    return tuple(one for part in parts for one in part(old, new))


def _identity(old: ExecutionPlan, new: ExecutionPlan) -> Iterator[Difference]:
    yield from _checkpoint(old, new)
    yield from changed("model class", old.architecture, new.architecture)
    why = "; ".join(new.platform_reasons)
    yield from changed("platform", old.platform, new.platform, why)
    yield from changed("platform wheel", old.platform_wheel, new.platform_wheel)
    yield from changed("device family", old.arch, new.arch)
    known = ("recognised", "not recognised")
    was, now = known[old.is_generic], known[new.is_generic]
    yield from changed("whether the platform knows the device family", was, now)
    yield from changed("dtype", old.dtype, new.dtype)


def _checkpoint(old: ExecutionPlan, new: ExecutionPlan) -> Iterator[Difference]:
    """Where the model is, and what it is, as far as it is known without reading its weights."""
    before, after = old.checkpoint, new.checkpoint
    if "source" in before and "source" in after:
        yield from changed("model", before["source"], after["source"])
    else:
        yield from changed("model", old.model, new.model)
    yield from changed("revision", before.get("revision"), after.get("revision"))
    yield from changed("digest of the config", before.get("config"), after.get("config"))
    if "tensors" in before and "tensors" in after:  # a plan needs no weight files
        yield from changed("digest of the tensors", before["tensors"], after["tensors"])


def _decisions(old: ExecutionPlan, new: ExecutionPlan) -> Iterator[Difference]:
    """Options whose values last; of those measured anew, the ones that the user fixed."""
    before, after = ({one.field: one for one in plan.decisions} for plan in (old, new))
    # Before memory is measured nothing is decided of it; what was asked for is compared instead.
    unmeasured = _MEASURED - (before.keys() & after.keys())
    elsewhere = _ELSEWHERE | _NO_VALUES | unmeasured
    for field in dict.fromkeys((*before, *after)):
        was, now = before.get(field), after.get(field)
        is_fixed = field in old.choices or (was is not None and was.author == USER)
        if field in elsewhere or (field in _MEASURED and not is_fixed):
            continue
        why = "" if now is None else now.reason
        before_value, value = (None if one is None else one.value for one in (was, now))
        yield from _option(field, before_value, value, why)
    compared = (before.keys() | after.keys()) - unmeasured
    asked = {**new.choices, **old.choices}
    for field in sorted(asked.keys() - compared - _ELSEWHERE - _NO_VALUES):
        if field in old.choices or field not in _SIZES:
            yield from _option(field, old.choices.get(field), new.choices.get(field))


def _option(field: str, was: Any, now: Any, why: str = "") -> Iterator[Difference]:
    if not is_same_choice(field, was, now):
        yield from changed(field, was, now, why)


def _weights(old: ExecutionPlan, new: ExecutionPlan) -> Iterator[Difference]:
    before, after = ({one.format: one for one in plan.weights} for plan in (old, new))
    for name in dict.fromkeys((*before, *after)):
        now = after.get(name)
        words = _weight_words(before.get(name)), _weight_words(now)
        yield from changed(f"weights {name}", *words, why="" if now is None else now.reason)


def _weight_words(plan: WeightPlan | None) -> str:
    if plan is None:
        return "not in the checkpoint"
    kernel = f" by {plan.kernel}" if plan.kernel else ""
    return f"{plan.where}, computed as {plan.computed_as}{kernel}"


def _mode(old: ExecutionPlan, new: ExecutionPlan) -> Iterator[Difference]:
    yield from changed("adapters", _lora_words(old), _lora_words(new), new.lora.reason)
    was, now = old.execution, new.execution
    yield from changed("execution", was.name, now.name, now.reason)
    yield from changed("captured", old.mode.name, new.mode.name, new.mode.reason)
    graphs, graphs_now = (plan.mode.graphs for plan in (old, new))
    for kind in ("decode", "piecewise", "full"):
        yield from changed(f"{kind} graphs", getattr(graphs, kind), getattr(graphs_now, kind))


def _lora_words(plan: ExecutionPlan) -> str:
    return "none" if plan.lora.assignment is None else f"by {plan.lora.wrapper}"


def _fallbacks(old: ExecutionPlan, new: ExecutionPlan) -> Iterator[Difference]:
    before, after = (
        {f"{one.level} fallback of {one.subject}": one for one in plan.fallbacks}
        for plan in (old, new)
    )
    for name in dict.fromkeys((*before, *after)):
        words = ("there", "not there")
        why = after[name].reason if name in after else ""
        yield from changed(name, words[name not in before], words[name not in after], why)


__all__ = ["Difference", "differences"]
