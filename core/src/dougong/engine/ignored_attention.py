"""What a checkpoint says of its attention and the class that computes it does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dougong.describe import AttentionNeed
from dougong.planner.number_ranges import number_ranges


def ignored_attention(
    described: Sequence[AttentionNeed],
    built: Sequence[AttentionNeed],
    architecture: str,
    max_model_len: int,
) -> tuple[str, ...]:
    """One sentence for each property that would change answers.

    Args:
        described: As the configuration has it.
        built: As the model class has it.
        architecture: Name of that class.
        max_model_len: Tokens of one request; a window that holds as many makes no difference.
    """
    layers: dict[str, list[int]] = {}
    of_layer = {index: need for need in built for index in need.layer_indices}
    for need in described:
        for index in need.layer_indices:
            for what in _missing(need, of_layer.get(index), max_model_len):
                layers.setdefault(what, []).append(index)
    total = sum(len(need.layer_indices) for need in described)
    return tuple(
        f"the config has {what}{_where(indices, total)}, which model class {architecture} ignores: "
        "its answers may differ from those of the model's authors"
        for what, indices in layers.items()
    )


def _missing(
    described: AttentionNeed, built: AttentionNeed | None, max_model_len: int
) -> Iterator[str]:
    window = described.sliding_window
    is_felt = window is not None and window < max_model_len
    if is_felt and (built is None or built.sliding_window != window):
        yield f"a sliding window of {window} tokens"
    if described.soft_cap is not None and (built is None or built.soft_cap != described.soft_cap):
        yield f"a cap of {described.soft_cap:g} on attention scores"
    if described.has_sinks and not (built and built.has_sinks):
        yield "attention sinks"
    if described.is_mla and not (built and built.is_mla):
        yield f"latent attention (kv_lora_rank={described.kv_lora_rank})"


def _where(indices: Iterable[int], total: int) -> str:
    found = set(indices)
    return "" if len(found) == total else f" in layers {number_ranges(found)}"
