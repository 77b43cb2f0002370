"""From a checkpoint's configuration to `ModelNeeds`; no weight is read, and none need be here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dougong.checkpoint import CheckpointFiles, WeightSummary, read_provenance
from dougong.describe.attention import describe_attention, head_sizes
from dougong.describe.experts import describe_experts
from dougong.describe.needs import ModelNeeds
from dougong.describe.sizes import check_sizes
from dougong.describe.text_config import text_config
from dougong.describe.weights import describe_weights


def describe_needs(
    files: CheckpointFiles,
    hf_config: Mapping[str, Any],
    weights: WeightSummary | None,
    *,
    architecture: str,
    num_parameters: int | None = None,
) -> ModelNeeds:
    """All that the configuration asks of a platform; ``ops`` stay empty.

    Args:
        files: Its files.
        hf_config: From `dougong.checkpoint.read_config`.
        weights: From `dougong.checkpoint.find_weight_summary`; ``None``: weight files are missing.
        architecture: Name of the model class.
        num_parameters: Of the built model; needed where ``weights`` is ``None``, and used there
            only.

    Raises:
        CheckpointError: The configuration lacks or contradicts a number that every model has, or
            names a kind of layer nobody here knows.
        ValueError: Neither ``weights`` nor ``num_parameters`` was given.
    """
    text = text_config(hf_config)
    check_sizes(text, files.reference)
    num_layers = int(text["num_hidden_layers"])
    dtype = str(text.get("torch_dtype") or hf_config["torch_dtype"])
    return ModelNeeds(
        architecture=architecture,
        num_parameters=count_parameters(weights, num_parameters),
        vocab_size=int(text["vocab_size"]),
        hidden_size=int(text["hidden_size"]),
        attention=describe_attention(text, num_layers),
        weights=describe_weights(hf_config, weights, file_format=files.format, dtype=dtype),
        experts=describe_experts(text, num_layers),
        provenance=_provenance(files, text, weights),
    )


def count_parameters(weights: WeightSummary | None, num_parameters: int | None) -> int:
    """Of the files, which is exact, or else of the built model.

    Raises:
        ValueError: Nobody knows.
    """
    if weights is not None:
        return weights.num_parameters
    if num_parameters is None:
        raise ValueError("without weight files the number of parameters must be given")
    return num_parameters


def _provenance(
    files: CheckpointFiles, text: Mapping[str, Any], weights: WeightSummary | None
) -> dict[str, str]:
    found = read_provenance(files, weights)
    found["head_dim"] = head_sizes(text).source
    for name in ("hidden_size", "intermediate_size", "vocab_size", "sliding_window"):
        if text.get(name):
            found[name] = f"{name} of the checkpoint's config"
    return found
