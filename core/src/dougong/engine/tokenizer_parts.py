"""What a tokenizer is made of, whichever kind of checkpoint it comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from dougong.checkpoint import CheckpointFiles
from dougong.errors import CheckpointError

_TOKEN_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True, slots=True)
class TokenizerParts:
    """Parts of a tokenizer.

    Attributes:
        backend: The tokenizers library's object; its post-processor adds BOS where the checkpoint
            wants one.
        special_tokens: Texts by role (``bos_token``, ``eos_token``, ...), for templates.
        bos_token_id: Beginning of sequence, if the model has one.
        stop_token_ids: Tokens that end a generation, the main one first.
        chat_template: Jinja source, if the checkpoint brings one.
    """

    backend: tokenizers.Tokenizer
    special_tokens: Mapping[str, str]
    bos_token_id: int | None
    stop_token_ids: tuple[int, ...]
    chat_template: str | None


def huggingface_parts(files: CheckpointFiles) -> TokenizerParts:
    """Parts from ``tokenizer.json`` and the JSON files beside it.

    Stop tokens: those of generation_config.json (where it is silent, config.json), and the
    tokenizer's own ``eos_token``: fine-tuned chat models often state only one of the two.

    Raises:
        CheckpointError: No tokenizer.json, or one of the files is damaged.
    """
    settings = _read_json(files.companion("tokenizer_config.json"))
    texts = {
        name: text
        for source in (_read_json(files.companion("special_tokens_map.json")), settings)
        for name in _TOKEN_NAMES
        if (text := _token_text(source.get(name))) is not None
    }
    backend = _load_backend(files)
    config = _read_json(files.companion("config.json"))
    generation = _read_json(files.companion("generation_config.json"))
    eos = generation.get("eos_token_id", config.get("eos_token_id"))
    stated = [eos] if isinstance(eos, int) else list(eos or ())
    own = backend.token_to_id(texts["eos_token"]) if "eos_token" in texts else None
    bos = backend.token_to_id(texts["bos_token"]) if "bos_token" in texts else None
    if bos is None and not settings:
        bos = config.get("bos_token_id")
    ordered = dict.fromkeys(token_id for token_id in (own, *stated) if token_id is not None)
    return TokenizerParts(
        backend=backend,
        special_tokens=texts,
        bos_token_id=bos,
        stop_token_ids=tuple(ordered),
        chat_template=_chat_template(files, settings),
    )


def _load_backend(files: CheckpointFiles) -> tokenizers.Tokenizer:
    path = files.companion("tokenizer.json")
    if path is None:
        raise CheckpointError(
            f"{files.folder} has no tokenizer.json. Copy it from where the weights came from; for "
            "an old model with only tokenizer.model, load and save it once with transformers' "
            "AutoTokenizer."
        )
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as exc:  # the library raises bare Exception
        raise CheckpointError(
            f"{path} cannot be read: {exc}. Fetch or copy it again; a newer `tokenizers` may be "
            "needed for a new model."
        ) from exc
    backend.no_truncation()
    backend.no_padding()
    return backend


def _chat_template(files: CheckpointFiles, settings: Mapping[str, Any]) -> str | None:
    if (path := files.companion("chat_template.jinja")) is not None:
        return path.read_text("utf-8")
    in_json = _read_json(files.companion("chat_template.json")).get("chat_template")
    found = in_json or settings.get("chat_template")
    if isinstance(found, list):
        named = {entry["name"]: entry["template"] for entry in found}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _token_text(value: object) -> str | None:
    """A special token's text: written as a string, or as an object with its content."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _read_json(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as exc:
        raise CheckpointError(f"{path} is not JSON: {exc}. Fetch or copy it again.") from exc
    return found if isinstance(found, dict) else {}
