"""Which attention layers see how far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dougong.config.model import AttentionLayerKind
from dougong.errors import CheckpointError

_FULL, _SLIDING = "full_attention", "sliding_attention"
_WITHOUT_ATTENTION = frozenset({"linear_attention", "mamba", "conv", "recurrent"})
# Every how many layers one sees everything, where a family's files may leave it unsaid.
_PATTERNS: Mapping[str, int] = {"gemma2": 2, "gemma3_text": 6, "gemma3": 6, "cohere2": 4}
_WINDOW_MUST_BE_ASKED_FOR = ("qwen2", "qwen3")  # their files may state a window and not use it
_UNSTATED_FIRST_LAYER = 28  # with a window, where these families' files ask for one


def describe_attention_layers(
    config: Mapping[str, Any], num_layers: int
) -> tuple[AttentionLayerKind, ...]:
    """Layers by window, those without one first.

    Args:
        config: Of the language model.
        num_layers: Decoder layers.

    Raises:
        CheckpointError: As `layer_windows`.
    """
    by_window: dict[int | None, list[int]] = {}
    for index, window in enumerate(layer_windows(config, num_layers)):
        by_window.setdefault(window, []).append(index)
    ordered = sorted(by_window.items(), key=lambda item: (item[0] is not None, item[0] or 0))
    return tuple(AttentionLayerKind(tuple(layers), size) for size, layers in ordered)


def layer_windows(config: Mapping[str, Any], num_layers: int) -> tuple[int | None, ...]:
    """Of each attention layer the tokens a query sees, itself included; ``None``: all.

    ``layer_types`` decides where it is given, then ``sliding_window_pattern`` or the family's own
    pattern. Otherwise ``sliding_window`` holds for every layer; with ``use_sliding_window`` from
    ``max_window_layers`` on, or not at all. Layers without attention are left out.

    Raises:
        CheckpointError: ``layer_types`` is too short, or names a kind nobody here knows.
    """
    kinds = _layer_types(config, num_layers)
    window = _window(config)
    return tuple(
        window if kind == _SLIDING else None for kind in kinds if kind not in _WITHOUT_ATTENTION
    )


def _window(config: Mapping[str, Any]) -> int | None:
    window = config.get("sliding_window")
    return int(window) if window and _uses_window(config) else None


def _uses_window(config: Mapping[str, Any]) -> bool:
    return bool(config.get("use_sliding_window", not _must_ask(config)))


def _must_ask(config: Mapping[str, Any]) -> bool:
    return str(config.get("model_type", "")).startswith(_WINDOW_MUST_BE_ASKED_FOR)


def _layer_types(config: Mapping[str, Any], num_layers: int) -> Sequence[str]:
    stated = config.get("layer_types")
    if stated:
        return _checked([str(kind) for kind in stated], num_layers)
    pattern = config.get("sliding_window_pattern") or _PATTERNS.get(
        str(config.get("model_type", ""))
    )
    if isinstance(pattern, str):  # "LLLG": local and global, repeated
        return [
            _SLIDING if pattern[index % len(pattern)] == "L" else _FULL
            for index in range(num_layers)
        ]
    if pattern:
        return [_FULL if (index + 1) % pattern == 0 else _SLIDING for index in range(num_layers)]
    first = _first_layer_with_window(config)
    return [_SLIDING if index >= first else _FULL for index in range(num_layers)]


def _first_layer_with_window(config: Mapping[str, Any]) -> int:
    if not config.get("use_sliding_window"):
        return 0
    stated = config.get("max_window_layers")
    if stated is None and _must_ask(config):
        return _UNSTATED_FIRST_LAYER
    return int(stated or 0)


def _checked(kinds: list[str], num_layers: int) -> list[str]:
    unknown = sorted({*kinds} - {_FULL, _SLIDING, *_WITHOUT_ATTENTION})
    if unknown:
        raise CheckpointError(
            f"layer_types names {', '.join(unknown)}, which this version cannot compute; it knows "
            f"{_FULL} and {_SLIDING}. Choose another model."
        )
    if len(kinds) < num_layers:
        raise CheckpointError(
            f"layer_types names {len(kinds)} layers and num_hidden_layers says {num_layers}. "
            "The config contradicts itself; fetch or copy it again."
        )
    return kinds[:num_layers]
