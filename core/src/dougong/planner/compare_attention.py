"""Two plans' attention and KV caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dougong.contracts import AttentionAssignment
from dougong.planner.attention_choice import describe_layout
from dougong.planner.difference import NOTHING, Difference, changed, reasons_by_name
from dougong.planner.execution_plan import ExecutionPlan
from dougong.planner.number_ranges import number_ranges


def compare_attention(old: ExecutionPlan, new: ExecutionPlan) -> Iterator[Difference]:
    """Backends and what layers ask; those that changed in the same way together."""
    reasons: dict[str, str] = {}
    for plan in new.attention:
        reasons |= reasons_by_name(plan.passed_over)
    yield from _by_aspect("attention backend", _backends, old, new, reasons)
    yield from _by_aspect("attention", _layer_words, old, new, {})


def compare_kv_cache(old: ExecutionPlan, new: ExecutionPlan) -> Iterator[Difference]:
    """Dtype and block size, else the layouts, which follow from both."""
    before, after = old.kv_cache, new.kv_cache
    yield from changed("KV dtype", before.dtype, after.dtype)
    why = [one.reason for one in new.decisions if one.field == "block_size"]
    yield from changed("block size", before.block_size, after.block_size, "".join(why[-1:]))
    if (before.dtype, before.block_size) == (after.dtype, after.block_size):
        yield from _by_aspect("KV layout", lambda one: describe_layout(one.layout), old, new, {})


def _by_aspect(
    aspect: str,
    words: Callable[[AttentionAssignment], str],
    old: ExecutionPlan,
    new: ExecutionPlan,
    reasons: Mapping[str, str],
) -> Iterator[Difference]:
    before, after = _by_layer(old, words), _by_layer(new, words)
    layers = sorted(before.keys() | after.keys())
    pairs: dict[tuple[str, str], list[int]] = {}
    for layer in layers:
        pair = before.get(layer, NOTHING), after.get(layer, NOTHING)
        pairs.setdefault(pair, []).append(layer)
    for (was, now), found in pairs.items():
        why = "; ".join(reasons[name] for name in was.split(" and ") if name in reasons)
        where = "" if len(found) == len(layers) else f" of layers {number_ranges(found)}"
        yield from changed(f"{aspect}{where}", was, now, why)


def _by_layer(plan: ExecutionPlan, words: Callable[[AttentionAssignment], str]) -> dict[int, str]:
    return {
        layer: words(one.assignment)
        for one in plan.attention
        for layer in one.assignment.layer_indices
    }


def _backends(one: AttentionAssignment) -> str:
    return " and ".join(dict.fromkeys((one.backend, one.decode_backend or one.backend)))


def _layer_words(one: AttentionAssignment) -> str:
    """What such a layer asks, without what a plan tells elsewhere."""
    request = one.request
    words = [f"{request.num_heads} heads", f"{request.num_kv_heads} KV heads"]
    words.append(f"head size {request.head_dim}")
    if request.sliding_window is not None:
        words.append(f"window {request.sliding_window}")
    if request.soft_cap is not None:
        words.append(f"cap {request.soft_cap:g}")
    words += ["sinks"] * request.has_sinks + ["latent"] * request.is_mla
    return ", ".join(words)
