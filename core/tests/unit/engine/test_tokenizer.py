from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from dougong.checkpoint import CheckpointFiles, resolve_reference
from dougong.engine.tokenizer import Tokenizer
from dougong.errors import ConfigError, RequestError
from tests.support.checkpoints import (
    TOKENIZER_SETTINGS,
    byte_level_tokenizer,
    write_tokenizer_folder,
)

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}<|end|>{% endfor %}"
MESSAGES = [{"role": "user", "content": "the fox"}]


def write_folder(folder: Path, **files: Any) -> CheckpointFiles:
    return resolve_reference(str(write_tokenizer_folder(folder, **files)))


def test_ids_are_those_of_the_tokenizer_file_without_its_truncation(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_files(write_folder(tmp_path))
    text = "the quick brown fox jumps over the lazy dog"
    plain = byte_level_tokenizer().encode(text).ids
    assert tokenizer.encode(text) == [0, *plain]
    assert tokenizer.encode(text, add_special_tokens=False) == plain
    assert tokenizer.decode([0, *plain]) == text
    assert tokenizer.vocab_size == byte_level_tokenizer().get_vocab_size()


def test_bos_is_added_once_and_never_doubled(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_files(write_folder(tmp_path), chat_template=TEMPLATE)
    plain = byte_level_tokenizer().encode("the fox").ids
    assert tokenizer.encode("<|bos|>the fox") == [0, *plain]
    assert tokenizer.encode("<|bos|>") == [0]
    assert tokenizer.encode("") == [0]
    assert tokenizer.encode_chat(MESSAGES) == [0, *plain, 1]


def test_a_template_without_bos_gets_none(tmp_path: Path) -> None:
    template = "{{ messages[0].content }}"
    tokenizer = Tokenizer.from_files(write_folder(tmp_path), chat_template=template)
    assert tokenizer.encode_chat(MESSAGES) == byte_level_tokenizer().encode("the fox").ids


def test_without_a_template_chat_is_refused_and_text_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="dougong"):
        tokenizer = Tokenizer.from_files(write_folder(tmp_path))
    assert "chat is unavailable" in caplog.text
    assert not tokenizer.has_chat_template
    with pytest.raises(RequestError, match="--chat-template"):
        tokenizer.encode_chat(MESSAGES)
    assert tokenizer.decode(tokenizer.encode("the fox")) == "the fox"


def test_a_template_given_by_the_user_replaces_the_checkpoints(tmp_path: Path) -> None:
    settings = TOKENIZER_SETTINGS | {"chat_template": "theirs"}
    files = write_folder(tmp_path, tokenizer_config=settings)
    tokenizer = Tokenizer.from_files(files, chat_template="ours")
    assert tokenizer.render_chat(MESSAGES) == "ours"
    with pytest.raises(ConfigError, match="syntax error"):
        Tokenizer.from_files(files, chat_template="{% if %}")


def test_lone_surrogates_are_encoded_as_a_mark(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_files(write_folder(tmp_path))
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a?b"


def test_the_bytes_of_a_token_are_known_even_inside_a_character(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_files(write_folder(tmp_path))
    ids = tokenizer.encode("世", add_special_tokens=False)
    assert b"".join(tokenizer.token_bytes(token_id) for token_id in ids) == "世".encode()
    assert tokenizer.token_bytes(1) == b"<|end|>"
