"""From a checkpoint's configuration and tensor headers to `ModelConfig`; no weight is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dougong.checkpoint import CheckpointFiles, WeightSummary
from dougong.config.model import ModelConfig
from dougong.describe.architecture import resolve_architecture
from dougong.describe.attention_layers import describe_attention_layers
from dougong.describe.max_position import resolve_max_position
from dougong.errors import CheckpointError

_REQUIRED = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")


def describe_model(
    files: CheckpointFiles,
    hf_config: Mapping[str, Any],
    weights: WeightSummary,
    known_architectures: Collection[str],
) -> ModelConfig:
    """Describe a model.

    Args:
        files: Its files.
        hf_config: From `dougong.checkpoint.read_config`.
        weights: From `dougong.checkpoint.read_weight_summary`.
        known_architectures: Names that a model class is registered for.

    Raises:
        CheckpointError: The architecture is unknown, or the configuration lacks or contradicts a
            number that every model has; all of them in one message.
    """
    text = _text_config(hf_config)
    architecture = resolve_architecture(hf_config, known_architectures, reference=files.reference)
    _check_numbers(text, files.reference)
    num_layers, num_heads = int(text["num_hidden_layers"]), int(text["num_attention_heads"])
    hidden_size = int(text["hidden_size"])
    max_position = resolve_max_position(text)
    if max_position is None:
        raise CheckpointError(
            f"The config of {files.reference} states no length (max_position_embeddings), so "
            "nobody knows how many tokens it can read. Add the field."
        )
    return ModelConfig(
        reference=files.reference,
        path=str(_path(files)),
        architecture=architecture,
        hf_config=hf_config,
        vocab_size=int(text["vocab_size"]),
        hidden_size=hidden_size,
        intermediate_size=int(text.get("intermediate_size") or 4 * hidden_size),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=int(text.get("num_key_value_heads") or num_heads),
        head_dim=int(text.get("head_dim") or hidden_size // num_heads),
        attention_layers=describe_attention_layers(text, num_layers),
        max_position=max_position[0],
        max_position_reason=max_position[1],
        dtype=str(text.get("torch_dtype") or hf_config.get("torch_dtype") or weights.torch_dtype),
        weight_formats={name: share.num_bytes for name, share in weights.formats.items()},
        num_parameters=weights.num_parameters,
        stored_bytes=weights.num_bytes,
        is_tied=weights.is_tied,
    )


def _text_config(hf_config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part, where a checkpoint holds several."""
    nested = hf_config.get("text_config")
    return nested if isinstance(nested, Mapping) else hf_config


def _check_numbers(config: Mapping[str, Any], reference: str) -> None:
    problems = [
        f"{name} is missing or no positive number"
        for name in _REQUIRED
        if not isinstance(config.get(name), int) or config[name] < 1
    ]
    if not problems:
        num_heads = config["num_attention_heads"]
        num_kv_heads = config.get("num_key_value_heads") or num_heads
        if num_heads % num_kv_heads:
            problems.append(f"{num_heads} heads cannot share {num_kv_heads} KV heads evenly")
        if not config.get("head_dim") and config["hidden_size"] % num_heads:
            problems.append(f"hidden_size={config['hidden_size']} is no multiple of {num_heads}")
    if problems:
        raise CheckpointError(f"The config of {reference} cannot be used:", tuple(problems))


def _path(files: CheckpointFiles) -> object:
    is_single_file = files.format.value == "gguf" and len(files.weights) > 0
    return files.weights[0] if is_single_file else files.folder
