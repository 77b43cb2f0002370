"""What a checkpoint says of its vectors, in the files that sentence-transformers writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dougong.checkpoint import CheckpointFiles
from dougong.config.model import StatedPooling
from dougong.errors import CheckpointError
from dougong.messages.pooling import PoolingMethod

_MODULES = "modules.json"
_METHODS: Mapping[str, PoolingMethod] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
_NAMED_METHODS: Mapping[str, PoolingMethod] = {"mean": "mean", "cls": "cls", "lasttoken": "last"}


def describe_pooling(files: CheckpointFiles, hf_config: Mapping[str, Any]) -> StatedPooling:
    """Read ``modules.json`` and the files it names; without it only the config speaks.

    Raises:
        CheckpointError: A file is damaged.
    """
    dimensions = tuple(int(size) for size in hf_config.get("matryoshka_dimensions") or ())
    is_matryoshka = bool(hf_config.get("is_matryoshka") or dimensions)
    modules = _read(files, _MODULES)
    if not isinstance(modules, list):
        return StatedPooling(dimensions=dimensions, is_matryoshka=is_matryoshka)
    kinds = [str(one.get("type", "")).rsplit(".", 1)[-1] for one in modules]
    problems = [
        f"{_MODULES} names a step of the kind {kind}, which nobody here computes. Choose a "
        "model without it."
        for kind in kinds
        if kind not in ("Transformer", "Pooling", "Normalize")
    ]
    method = None
    for kind, module in zip(kinds, modules, strict=True):
        if kind == "Pooling":
            method = _method(files, str(module.get("path", "")), problems)
    told = _read_object(files, "config_sentence_transformers.json")
    prompts = told.get("prompts") or {}
    return StatedPooling(
        source=_MODULES,
        method=method,
        is_normalized="Normalize" in kinds,
        dimensions=dimensions,
        is_matryoshka=is_matryoshka,
        max_len=_max_len(files),
        prompts={str(name): str(text) for name, text in prompts.items()},
        default_prompt=told.get("default_prompt_name"),
        problems=tuple(problems),
    )


def _method(files: CheckpointFiles, folder: str, problems: list[str]) -> PoolingMethod | None:
    """Of a pooling step; what is asked for and not known is added to the problems."""
    name = f"{folder}/config.json"
    config = _read_object(files, name)
    if stated := config.get("pooling_mode"):
        asked: Sequence[str] = [stated] if isinstance(stated, str) else [str(one) for one in stated]
        known = _NAMED_METHODS
    else:
        asked = [key for key, is_on in config.items() if key.startswith("pooling_mode_") and is_on]
        known = _METHODS
    if len(asked) == 1 and asked[0] in known:
        return known[asked[0]]
    problems.append(
        f"{name} asks for {', '.join(asked) or 'no known way'} of pooling, and one of "
        f"{', '.join(known)} can be computed. Choose another model."
    )
    return None


def _max_len(files: CheckpointFiles) -> int | None:
    length = _read_object(files, "sentence_bert_config.json").get("max_seq_length")
    return length if isinstance(length, int) and not isinstance(length, bool) else None


def _read_object(files: CheckpointFiles, name: str) -> Mapping[str, Any]:
    found = _read(files, name)
    return found if isinstance(found, dict) else {}


def _read(files: CheckpointFiles, name: str) -> Any:
    path = files.companion(name)
    if path is None:
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as exc:
        raise CheckpointError(f"{path} is not JSON: {exc}. Fetch or copy it again.") from exc
