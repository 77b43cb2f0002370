"""A model's configuration in the vocabulary of Hugging Face's config.json, from any file format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dougong.checkpoint.files import CheckpointFiles, CheckpointFormat
from dougong.checkpoint.weight_summary import find_weight_summary
from dougong.errors import CheckpointError

UNSTATED_DTYPE = "bfloat16"
"""Of a checkpoint that names no dtype and whose weights are not here: most are stored so."""


def read_config(files: CheckpointFiles) -> dict[str, Any]:
    """Return the configuration; no weight is read.

    Keys are those of config.json, and these are made uniform:

    * ``torch_dtype``: dtype name, from ``torch_dtype`` or ``dtype`` or else from how most weights
      are stored (`WeightSummary.torch_dtype`); `UNSTATED_DTYPE` where no weight file is here
      either;
    * ``rope_parameters``, ``rope_theta`` and ``rope_scaling`` agree, whichever generation of
      `transformers` wrote them: ``rope_parameters`` holds ``rope_type`` (``"default"`` if plain)
      and ``rope_theta`` where it is known; ``rope_scaling`` is ``None`` for plain rotation. A
      ``rope_parameters`` with one entry per layer type stays as it is.

    Raises:
        CheckpointError: No config, one that is not JSON, or one without ``architectures`` and
            ``model_type``.
    """
    if files.format is CheckpointFormat.GGUF:
        from dougong.checkpoint.gguf_config import gguf_config

        config = gguf_config(files.weights)
    else:
        config = _read_json_config(files)
    _settle_dtype(config, files)
    settle_rope(config)
    return config


def _read_json_config(files: CheckpointFiles) -> dict[str, Any]:
    path = files.companion("config.json")
    if path is None:
        raise CheckpointError(
            f"{files.folder} has weights but no config.json, which says what model they are. "
            "Copy it from where the weights came from."
        )
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as exc:
        raise CheckpointError(f"{path} is not JSON: {exc}. Fetch or copy it again.") from exc
    if not isinstance(config, dict) or not ("architectures" in config or "model_type" in config):
        raise CheckpointError(
            f"{path} names neither 'architectures' nor 'model_type', so the model is unknown. "
            "Is it the config.json of a Hugging Face model?"
        )
    return config


def _settle_dtype(config: dict[str, Any], files: CheckpointFiles) -> None:
    stated = stated_dtype(config)
    config.pop("dtype", None)
    if stated is None:
        summary = find_weight_summary(files)
        stated = summary.torch_dtype if summary else UNSTATED_DTYPE
    config["torch_dtype"] = stated


def stated_dtype(config: Mapping[str, Any]) -> str | None:
    """The dtype that a config.json itself names, under its old or its new key."""
    stated = config.get("torch_dtype") or config.get("dtype")
    return stated.removeprefix("torch.") if isinstance(stated, str) else None


def settle_rope(config: dict[str, Any]) -> None:
    """Make the three spellings of the rotary settings agree, in place."""
    parameters = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    if any(isinstance(value, dict) for value in parameters.values()):
        return
    if "type" in parameters:  # the spelling before transformers 4.45
        parameters.setdefault("rope_type", parameters.pop("type"))
    parameters.setdefault("rope_type", "default")
    theta = parameters.get("rope_theta", config.get("rope_theta"))
    if theta is not None:
        config["rope_theta"] = parameters["rope_theta"] = theta
    config["rope_parameters"] = parameters
    scaling = {key: value for key, value in parameters.items() if key != "rope_theta"}
    config["rope_scaling"] = None if scaling["rope_type"] == "default" else scaling
