from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers

from dougong.checkpoint import resolve_reference
from dougong.engine.grammar_vocabulary import check_vocabulary, grammar_vocabulary
from dougong.engine.tokenizer import Tokenizer
from dougong.engine.tokenizer_parts import TokenizerParts
from dougong.errors import RequestError
from tests.support.tiny_models import BOS_ID, EOS_ID, write_tiny_checkpoint


def test_tokens_are_the_bytes_that_the_text_is_made_of(tmp_path: Path) -> None:
    files = resolve_reference(str(write_tiny_checkpoint(tmp_path)))
    tokenizer = Tokenizer.from_files(files)
    found = grammar_vocabulary(files, vocab_size=400)
    assert len(found.token_bytes) == 400
    assert found.token_bytes[:256] == [tokenizer.token_bytes(one) for one in range(256)]
    assert set(found.token_bytes[tokenizer.vocab_size :]) == {b""}
    assert {BOS_ID, EOS_ID} <= found.special_ids
    assert EOS_ID in found.eos_ids
    text = "the \N{GREEK SMALL LETTER DELTA} in"
    assert b"".join(found.token_bytes[one] for one in found.encode(text)) == text.encode()


def test_ids_that_the_model_does_not_have_are_left_out(tmp_path: Path) -> None:
    files = resolve_reference(str(write_tiny_checkpoint(tmp_path)))
    found = grammar_vocabulary(files, vocab_size=EOS_ID + 1)
    assert len(found.token_bytes) == EOS_ID + 1
    assert max(found.special_ids) == EOS_ID


def test_a_model_without_an_end_of_text_is_refused(tmp_path: Path) -> None:
    files = resolve_reference(str(write_tiny_checkpoint(tmp_path)))
    with pytest.raises(RequestError, match="ends a text") as caught:
        grammar_vocabulary(files, vocab_size=200)
    assert caught.value.field == "structured_output"


def test_tokens_without_a_text_of_their_own_are_refused() -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece({"a": 0, "##b": 1, "[UNK]": 2}))
    backend.decoder = tokenizers.decoders.WordPiece()
    parts = TokenizerParts(
        backend=backend,
        special_tokens={},
        bos_token_id=None,
        stop_token_ids=(0,),
        chat_template=None,
    )
    with pytest.raises(RequestError, match="no fixed text"):
        check_vocabulary(Tokenizer(parts), 3)
