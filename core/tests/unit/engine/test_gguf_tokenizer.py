from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType

from dougong.checkpoint import resolve_reference
from dougong.engine.gguf_tokenizer import merges_from_scores
from dougong.engine.tokenizer import Tokenizer
from dougong.errors import CheckpointError
from tests.support.checkpoints import (
    byte_level_metadata,
    byte_level_tokenizer,
    random_rows,
    write_gguf,
)

TENSORS = {"token_embd.weight": (random_rows(2, 64), GGMLQuantizationType.F32)}
TEXTS = [
    "the quick brown fox",
    "def main():\n    return 12345",
    "世界 👋🏽",
    "",
    "  a  b\t\n\n c",
    "<|end|>x",
]


def tokenizer_from(path: Path, metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_files(
        resolve_reference(str(write_gguf(path, TENSORS, metadata=metadata)))
    )


def test_a_byte_level_vocabulary_gives_the_ids_of_its_origin(tmp_path: Path) -> None:
    backend = byte_level_tokenizer()
    tokenizer = tokenizer_from(tmp_path / "m.gguf", byte_level_metadata(backend))
    for text in TEXTS:
        assert tokenizer.encode(text) == backend.encode(text).ids, text
    assert tokenizer.stop_token_ids == {1, 2}
    assert tokenizer.eos_token_id == 1
    assert tokenizer.bos_token_id == 0


@pytest.mark.parametrize(
    ("pre", "stored", "expected"),
    [
        ("gpt-2", None, False),
        ("llama-bpe", None, True),
        ("gpt-2", True, True),
        ("llama-bpe", False, False),
    ],
)
def test_bos_follows_the_metadata_and_else_the_rules(
    tmp_path: Path, pre: str, stored: bool | None, expected: bool
) -> None:
    metadata = byte_level_metadata(byte_level_tokenizer(), pre=pre)
    if stored is not None:
        metadata["tokenizer.ggml.add_bos_token"] = stored
    tokenizer = tokenizer_from(tmp_path / "m.gguf", metadata)
    assert (tokenizer.encode("the")[0] == 0) is expected
    assert tokenizer.encode("<|bos|>the").count(0) == 1


def test_the_chat_template_comes_from_the_metadata(tmp_path: Path) -> None:
    metadata = byte_level_metadata(byte_level_tokenizer())
    metadata["tokenizer.chat_template"] = "{{ bos_token }}{{ messages[0].content }}"
    tokenizer = tokenizer_from(tmp_path / "m.gguf", metadata)
    ids = tokenizer.encode_chat([{"role": "user", "content": "the"}])
    assert ids == [0, *byte_level_tokenizer().encode("the").ids]


def test_unknown_rules_are_refused_and_not_guessed(tmp_path: Path) -> None:
    metadata = byte_level_metadata(byte_level_tokenizer(), pre="novel-bpe")
    with pytest.raises(CheckpointError, match=r"'novel-bpe', which are not known.*llama-bpe"):
        tokenizer_from(tmp_path / "m.gguf", metadata)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.ggml.model": "bert"}, "tokenizer of kind 'bert'"),
        ({"tokenizer.ggml.merges": ["zzz yyy"]}, "inconsistent vocabulary"),
    ],
)
def test_an_unusable_vocabulary_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    metadata = byte_level_metadata(byte_level_tokenizer()) | changes
    with pytest.raises(CheckpointError, match=message):
        tokenizer_from(tmp_path / "m.gguf", metadata)


def sentence_piece_metadata(**changes: Any) -> dict[str, Any]:
    """Control tokens, all bytes, letters, and pieces whose scores decide between cuts of "abc"."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [2, 3, 3] + [6] * 256
    scores = [0.0] * len(pieces)
    for rank, piece in enumerate(["bc", "ab", "▁ab", "▁", "a", "b", "c"]):
        pieces.append(piece)
        types.append(1)
        scores.append(-float(rank))
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    } | changes


def spelt(metadata: dict[str, Any], ids: Sequence[int]) -> list[str]:
    return [metadata["tokenizer.ggml.tokens"][token_id] for token_id in ids]


def test_sentence_piece_joins_the_best_scored_piece_first(tmp_path: Path) -> None:
    metadata = sentence_piece_metadata()
    tokenizer = tokenizer_from(tmp_path / "m.gguf", metadata)
    assert spelt(metadata, tokenizer.encode("abc ab")) == ["<s>", "▁", "a", "bc", "▁ab"]
    assert tokenizer.decode(tokenizer.encode("abc ab")) == "abc ab"


def test_sentence_piece_spells_unknown_characters_in_bytes(tmp_path: Path) -> None:
    metadata = sentence_piece_metadata()
    tokenizer = tokenizer_from(tmp_path / "m.gguf", metadata)
    ids = tokenizer.encode("é", add_special_tokens=False)
    assert spelt(metadata, ids) == ["▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(ids) == "é"


def test_without_a_space_prefix_text_begins_as_it_is(tmp_path: Path) -> None:
    metadata = sentence_piece_metadata(**{"tokenizer.ggml.add_space_prefix": False})
    tokenizer = tokenizer_from(tmp_path / "m.gguf", metadata)
    ids = tokenizer.encode("ab ab", add_special_tokens=False)
    assert spelt(metadata, ids) == ["ab", "▁ab"]
    assert tokenizer.decode(tokenizer.encode(" ab")) == " ab"


def test_control_and_byte_tokens_take_part_in_no_merge() -> None:
    tokens, types = ["a", "b", "ab", "abab"], [1, 1, 1, 3]
    assert merges_from_scores(tokens, [0.0] * 4, types) == [("a", "b")]
