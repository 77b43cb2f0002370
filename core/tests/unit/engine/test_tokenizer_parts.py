from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dougong.checkpoint import CheckpointFiles, resolve_reference
from dougong.engine.tokenizer_parts import huggingface_parts
from dougong.errors import CheckpointError
from tests.support.checkpoints import TOKENIZER_SETTINGS, write_tokenizer_folder

TEMPLATE = "{{ messages }}"


def write_folder(folder: Path, **files: Any) -> CheckpointFiles:
    return resolve_reference(str(write_tokenizer_folder(folder, **files)))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {1}),
        ({"generation_config": {"eos_token_id": 2}}, {1, 2}),
        ({"generation_config": {"eos_token_id": [2, 7]}}, {1, 2, 7}),
        ({"config": {"model_type": "x", "eos_token_id": 9}}, {1, 9}),
        ({"tokenizer_config": {}, "generation_config": {"eos_token_id": [5]}}, {5}),
    ],
    ids=["tokenizer", "number", "list", "config", "only generation"],
)
def test_stop_tokens_are_collected_from_everywhere(
    tmp_path: Path, files: dict[str, Any], expected: set[int]
) -> None:
    parts = huggingface_parts(write_folder(tmp_path, **files))
    assert set(parts.stop_token_ids) == expected
    assert len(parts.stop_token_ids) == len(expected)


@pytest.mark.parametrize(
    "place", ["chat_template.jinja", "chat_template.json", "tokenizer_config", "named"]
)
def test_a_chat_template_is_found_wherever_checkpoints_put_it(tmp_path: Path, place: str) -> None:
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    inside = {"tokenizer_config": TEMPLATE, "named": named}.get(place)
    settings = TOKENIZER_SETTINGS | ({"chat_template": inside} if inside else {})
    files = write_folder(tmp_path, tokenizer_config=settings)
    if place == "chat_template.jinja":
        (tmp_path / place).write_text(TEMPLATE)
    if place == "chat_template.json":
        (tmp_path / place).write_text(json.dumps({"chat_template": TEMPLATE}))
    assert huggingface_parts(files).chat_template == TEMPLATE


@pytest.mark.parametrize("content", ["", "{}", '{"model": 5}'])
def test_a_damaged_tokenizer_file_is_named(tmp_path: Path, content: str) -> None:
    files = write_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be read"):
        huggingface_parts(files)


def test_a_missing_tokenizer_file_is_named(tmp_path: Path) -> None:
    files = write_folder(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        huggingface_parts(files)


def test_a_damaged_companion_file_is_named(tmp_path: Path) -> None:
    files = write_folder(tmp_path)
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"generation_config\.json is not JSON"):
        huggingface_parts(files)


def test_special_tokens_are_known_by_role_text_and_id(tmp_path: Path) -> None:
    parts = huggingface_parts(write_folder(tmp_path))
    assert parts.special_tokens == {"bos_token": "<|bos|>", "eos_token": "<|end|>"}
    assert parts.bos_token_id == 0
    assert parts.stop_token_ids == (1,)


def test_the_older_map_of_special_tokens_is_read_where_the_settings_are_silent(
    tmp_path: Path,
) -> None:
    older = {"bos_token": "<|user|>", "eos_token": "<|user|>"}
    settings = {"eos_token": "<|end|>"}
    files = write_folder(tmp_path, special_tokens_map=older, tokenizer_config=settings)
    parts = huggingface_parts(files)
    assert parts.special_tokens == {"bos_token": "<|user|>", "eos_token": "<|end|>"}
