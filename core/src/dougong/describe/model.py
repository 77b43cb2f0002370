"""From a checkpoint's configuration and tensor headers to `ModelConfig`; no weight is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dougong.checkpoint import CheckpointFiles, WeightSummary
from dougong.config.model import ModelConfig
from dougong.describe.architecture import resolve_architecture
from dougong.describe.attention import head_sizes
from dougong.describe.attention_layers import describe_attention_layers
from dougong.describe.max_position import resolve_max_position
from dougong.describe.model_needs import count_parameters
from dougong.describe.pooling import describe_pooling
from dougong.describe.sizes import check_sizes
from dougong.describe.text_config import text_config
from dougong.errors import CheckpointError

# Families whose head is the embedding unless their files say otherwise.
_TIED_UNLESS_SAID = ("gemma", "cohere")


def describe_model(
    files: CheckpointFiles,
    hf_config: Mapping[str, Any],
    weights: WeightSummary | None,
    known_architectures: Collection[str],
    *,
    num_parameters: int | None = None,
) -> ModelConfig:
    """Describe a model.

    Args:
        files: Its files.
        hf_config: From `dougong.checkpoint.read_config`.
        weights: From `dougong.checkpoint.find_weight_summary`; ``None``: weight files are missing,
            and nothing is known of their bytes.
        known_architectures: Names that a model class is registered for.
        num_parameters: Of the built model; needed where ``weights`` is ``None``, and used there
            only.

    Raises:
        CheckpointError: The architecture is unknown, or the configuration lacks or contradicts a
            number that every model has; all of them in one message.
        ValueError: Neither ``weights`` nor ``num_parameters`` was given.
    """
    text = text_config(hf_config)
    architecture = resolve_architecture(hf_config, known_architectures, reference=files.reference)
    check_sizes(text, files.reference)
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
        head_dim=head_sizes(text).head_dim,
        attention_layers=describe_attention_layers(text, num_layers),
        max_position=max_position[0],
        max_position_reason=max_position[1],
        dtype=str(text.get("torch_dtype") or hf_config["torch_dtype"]),
        weight_formats=_weight_formats(weights),
        num_parameters=count_parameters(weights, num_parameters),
        stored_bytes=weights.num_bytes if weights else 0,
        is_tied=weights.is_tied if weights else _says_tied(text),
        pooling=describe_pooling(files, hf_config),
    )


def _weight_formats(weights: WeightSummary | None) -> dict[str, int]:
    return {name: share.num_bytes for name, share in weights.formats.items()} if weights else {}


def _says_tied(config: Mapping[str, Any]) -> bool:
    family = str(config.get("model_type", ""))
    return bool(config.get("tie_word_embeddings", family.startswith(_TIED_UNLESS_SAID)))


def _path(files: CheckpointFiles) -> object:
    is_single_file = files.format.value == "gguf" and len(files.weights) > 0
    return files.weights[0] if is_single_file else files.folder
