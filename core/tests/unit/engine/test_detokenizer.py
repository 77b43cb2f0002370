"""Characters split over tokens come whole; invalid bytes give a mark and never a stall."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers

from dougong.engine.detokenizer import (
    ByteDetokenizer,
    LibraryDetokenizer,
    TokenBytes,
    token_bytes_for,
)
from tests.support.checkpoints import byte_level_tokenizer

MARK = "\N{REPLACEMENT CHARACTER}"
BACKEND = byte_level_tokenizer()
SPLIT_TEXTS = ["👩‍👩‍👧", "世界", "e\u0301a\u0308", "naïve café", "🇨🇳 flag", "plain"]


def byte_table(backend: tokenizers.Tokenizer) -> TokenBytes:
    table = token_bytes_for(backend)
    assert table is not None
    return table


TABLE = byte_table(BACKEND)
ID_OF_BYTE = {
    TABLE[token_id]: token_id
    for token_id in range(3, BACKEND.get_vocab_size())
    if len(TABLE[token_id]) == 1
}


def ids_of_bytes(data: bytes) -> list[int]:
    return [ID_OF_BYTE[bytes([byte])] for byte in data]


def events(ids: list[int]) -> list[str]:
    detokenizer = ByteDetokenizer(TABLE, skip_special_tokens=True, at_start=False)
    return [*(detokenizer.push([token_id]) for token_id in ids), detokenizer.flush()]


def test_every_byte_has_a_token() -> None:
    assert len(ID_OF_BYTE) == 256


@pytest.mark.parametrize("text", SPLIT_TEXTS)
def test_characters_split_over_tokens_come_whole(text: str) -> None:
    pieces = events(ids_of_bytes(text.encode()))
    assert "".join(pieces) == text
    assert MARK not in "".join(pieces)
    assert all(piece.encode().decode() == piece for piece in pieces)


def test_invalid_bytes_give_one_mark_and_do_not_stall() -> None:
    pieces = events(ids_of_bytes(b"ab\xffcd"))
    assert pieces == ["a", "b", MARK, "c", "d", ""]


def test_a_run_of_invalid_bytes_never_stalls() -> None:
    pieces = events(ids_of_bytes(b"\xff" * 5))
    assert pieces == [MARK] * 5 + [""]


def test_a_broken_character_gives_one_mark_when_the_next_begins() -> None:
    pieces = events(ids_of_bytes("世".encode()[:2] + b"x"))
    assert pieces == ["", "", MARK + "x", ""]


def test_a_replacement_mark_that_the_model_means_is_not_held_back() -> None:
    assert events(ids_of_bytes(MARK.encode()))[2] == MARK


def test_a_cut_inside_a_character_is_the_same_in_both_modes() -> None:
    ids = ids_of_bytes(b"ok " + "界".encode()[:2])
    whole = ByteDetokenizer(TABLE, skip_special_tokens=True, at_start=False)
    assert "".join(events(ids)) == whole.push(ids) + whole.flush() == "ok " + MARK


@given(st.binary(max_size=40), st.lists(st.integers(1, 5), max_size=20))
def test_any_bytes_in_any_grouping_give_what_python_decodes(data: bytes, sizes: list[int]) -> None:
    ids = ids_of_bytes(data)
    detokenizer = ByteDetokenizer(TABLE, skip_special_tokens=True, at_start=False)
    text = ""
    for size in sizes:
        text += detokenizer.push(ids[:size])
        ids = ids[size:]
    text += detokenizer.push(ids) + detokenizer.flush()
    assert text == data.decode("utf-8", "replace")


@given(st.text(max_size=60))
def test_text_survives_encoding_and_streaming(text: str) -> None:
    ids = BACKEND.encode(text, add_special_tokens=False).ids
    assert "".join(events(ids)) == text == BACKEND.decode(ids)


def test_special_tokens_are_left_out_or_shown_as_asked() -> None:
    ids = [0, *BACKEND.encode("hi", add_special_tokens=False).ids, 1]
    shown = ByteDetokenizer(TABLE, skip_special_tokens=False, at_start=False)
    assert "".join(events(ids)) == "hi"
    assert shown.push(ids) == "<|bos|>hi<|end|>"


def test_an_id_beyond_the_vocabulary_is_no_text() -> None:
    assert events([BACKEND.get_vocab_size() + 5]) == ["", ""]


def sentence_piece() -> tokenizers.Tokenizer:
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁Hi", "▁", "there", "▁there"]
    backend = tokenizers.Tokenizer(
        models.BPE({piece: i for i, piece in enumerate(pieces)}, [], byte_fallback=True)
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(content=" ", left=1)])
    return backend


def id_of(backend: tokenizers.Tokenizer, piece: str) -> int:
    found = backend.token_to_id(piece)
    assert found is not None
    return found


def test_sentence_piece_drops_only_the_first_space_of_a_document() -> None:
    backend = sentence_piece()
    table = byte_table(backend)
    ids = [id_of(backend, piece) for piece in ("▁Hi", "▁there", "▁")]
    document = ByteDetokenizer(table, skip_special_tokens=True, at_start=True)
    continued = ByteDetokenizer(table, skip_special_tokens=True, at_start=False)
    assert [document.push([token_id]) for token_id in ids] == ["Hi", " there", " "]
    assert continued.push(ids) == " Hi there "


def test_byte_tokens_of_sentence_piece_join_into_characters() -> None:
    backend = sentence_piece()
    table = byte_table(backend)
    ids = [id_of(backend, f"<0x{byte:02X}>") for byte in "é".encode()]
    detokenizer = ByteDetokenizer(table, skip_special_tokens=True, at_start=False)
    assert [detokenizer.push([token_id]) for token_id in ids] == ["", "é"]


def test_other_decoders_go_through_the_library() -> None:
    words = ["[UNK]", "hello", "##ing", "world"]
    model = models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece()
    assert token_bytes_for(backend) is None
    detokenizer = LibraryDetokenizer(backend, skip_special_tokens=True)
    text = "".join(detokenizer.push([token_id]) for token_id in (1, 2, 3))
    assert text + detokenizer.flush() == backend.decode([1, 2, 3]) == "helloing world"
