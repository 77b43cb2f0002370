"""Attention and KV cache of a plan for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.tree import Tree

from dougong.cli.explain_text import counted, entry, line, size
from dougong.config.decision import CORE, USER
from dougong.contracts import AttentionPhase, AttentionRequest, KVBuffer, KVLayout
from dougong.planner import AttentionPlan, ExecutionPlan, KVCachePlanned
from dougong.planner.number_ranges import number_ranges


def attention_tree(plan: ExecutionPlan) -> Tree:
    """Each kind of layer, its backend, and who could not serve it."""
    num_layers = sum(len(one.assignment.layer_indices) for one in plan.attention)
    tree = Tree(entry("attention:", f"{counted(num_layers, 'layer')}{_kinds(plan)}"))
    for kind in plan.attention:
        _add_kind(tree, kind)
    return tree


def kv_cache_tree(plan: ExecutionPlan) -> Tree:
    """Blocks, what they hold and what they waste."""
    cache = plan.kv_cache
    if not plan.attention:
        return Tree(entry("KV cache:", "none: the model keeps no keys and values"))
    tree = Tree(entry("KV cache:", _blocks(plan)))
    per_token = size(cache.block_bytes / cache.block_size)
    tree.add(
        entry(
            "one block:",
            f"{counted(cache.block_size, 'token')} of all layers in {cache.dtype}: "
            f"{size(cache.block_bytes)}, {per_token} per token",
        )
    )
    tree.add(entry("lost to alignment:", _padding(cache)))
    if cache.reserved_blocks:
        reserved = counted(cache.reserved_blocks, "block")
        tree.add(entry("reserved:", f"{reserved}, which a backend keeps for itself"))
    return tree


def _kinds(plan: ExecutionPlan) -> str:
    return f" of {len(plan.attention)} kinds" if len(plan.attention) > 1 else ""


def _add_kind(tree: Tree, kind: AttentionPlan) -> None:
    one = kind.assignment
    noun = "layer" if len(one.layer_indices) == 1 else "layers"
    branch = tree.add(
        line(
            (f"{noun} {number_ranges(one.layer_indices)}: ", "bold"),
            (_backends(kind), "green"),
            f", {_author(kind.author)}",
        )
    )
    branch.add(entry("needs:", ", ".join(_needs(one.request))))
    branch.add(entry("KV layout:", _layout(one.layout, one.request.block_size)))
    workspace = size(kind.workspace_bytes) if kind.workspace_bytes else "none"
    branch.add(entry("workspace:", f"{workspace} beside the cache, for the largest step"))
    for other in kind.passed_over:
        branch.add(line((f"{other.name} passed over", "bold"), f": {other.reason}"))


def _backends(kind: AttentionPlan) -> str:
    one = kind.assignment
    if one.decode_backend is None:
        return one.backend
    return f"{one.backend} for prefill, {one.decode_backend} for decode"


def _author(author: str) -> str:
    return {USER: "as the user asked", CORE: "chosen by the core"}.get(author, f"by {author}")


def _needs(request: AttentionRequest) -> Iterator[str]:
    yield f"{counted(request.num_heads, 'query head')}"
    yield f"{counted(request.num_kv_heads, 'KV head')} of {request.head_dim} elements"
    yield f"{request.dtype}"
    yield f"KV cache in {request.kv_dtype}"
    if request.sliding_window is not None:
        yield f"a window of {counted(request.sliding_window, 'token')}"
    if request.soft_cap is not None:
        yield f"scores capped at {request.soft_cap:g}"
    if request.has_sinks:
        yield "sinks"
    if request.is_mla:
        yield f"latent rows of {request.kv_lora_rank}, {request.rope_head_dim} rotated"
    if request.phase is not AttentionPhase.MIXED:
        yield f"{request.phase} steps"
    if request.needs_graph:
        yield "capture in a graph"


def _layout(layout: KVLayout, block_size: int | None) -> str:
    """One block of one layer, and what the layout allows."""
    others = [str(one) for one in layout.block_sizes if one != block_size]
    texts = [f"{layout.name}, in a block {_buffers(layout)}"]
    if others:
        texts.append(f"takes blocks of {', '.join(others)} too")
    if layout.alignment_bytes > 1:
        texts.append(f"blocks aligned to {size(layout.alignment_bytes)}")
    texts.append(f"slots in {layout.slot_dtype}")
    return "; ".join(texts)


def _buffers(layout: KVLayout) -> str:
    """Buffers that are alike together: ``k and v [3, 16, 64] float32``."""
    names: dict[str, list[str]] = {}
    for buffer in layout.buffers:
        names.setdefault(_shape(buffer), []).append(buffer.name)
    return ", ".join(f"{' and '.join(some)} {shape}" for shape, some in names.items())


def _shape(buffer: KVBuffer) -> str:
    return f"{list(buffer.block_shape)} {buffer.dtype}"


def _blocks(plan: ExecutionPlan) -> str:
    cache = plan.kv_cache
    if cache.num_blocks is None:
        return "as many blocks as memory leaves, measured at the start"
    used, tokens = cache.num_blocks * cache.block_bytes, cache.num_blocks * cache.block_size
    is_asked = {"num_kv_blocks", "kv_cache_memory_bytes"} & plan.choices.keys()
    bound = "as asked" if is_asked else "at most; the start measures what memory leaves"
    blocks = counted(cache.num_blocks, "block")
    return f"{blocks}, {tokens:,} tokens, {size(used)} ({bound})"


def _padding(cache: KVCachePlanned) -> str:
    if not cache.padding_bytes:
        return "nothing"
    share = cache.padding_bytes / cache.block_bytes
    text = f"{size(cache.padding_bytes)} of each block ({share:.1%})"
    if cache.num_blocks is None:
        return text
    return f"{text}, {size(cache.padding_bytes * cache.num_blocks)} in all"
