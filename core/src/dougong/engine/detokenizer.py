"""Token ids to text, as they come: whole characters only, never a stall.

A character may be spread over several tokens, so tokens are turned into bytes and the bytes into
text by one UTF-8 decoder per request. It holds back at most the three bytes of an unfinished
character; bytes that can belong to none give one replacement mark at once. Text in one go is the
same decoder fed at once, so both modes agree by construction.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable
from typing import Any, Protocol

import tokenizers
from tokenizers.decoders import DecodeStream

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"  # how SentencePiece writes a space


class Detokenizer(Protocol):
    """The text of one growing sequence of tokens."""

    def push(self, token_ids: Iterable[int]) -> str:
        """Text that these tokens complete; may be empty."""
        ...

    def flush(self) -> str:
        """Text of what was held back, at the end: a mark for an unfinished character."""
        ...


class TokenBytes:
    """The bytes each token stands for, made when first asked for.

    Works for byte-level tokenizers (GPT-2's alphabet) and SentencePiece's (marks for spaces,
    ``<0x0A>`` for bytes); `for_backend` says which a tokenizer is.
    """

    def __init__(self, backend: tokenizers.Tokenizer, *, is_byte_level: bool, strip: bool) -> None:
        self._backend = backend
        self._is_byte_level = is_byte_level
        self._added = backend.get_added_tokens_decoder()
        self._known: dict[int, bytes] = {}
        self.strips_first_space = strip
        self.special_ids = frozenset(i for i, token in self._added.items() if token.special)

    def __getitem__(self, token_id: int) -> bytes:
        """Bytes of a token; none for an id outside the vocabulary (padding rows of a head)."""
        found = self._known.get(token_id)
        if found is None:
            found = self._known[token_id] = self._make(token_id)
        return found

    def _make(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].content.encode()
        piece = self._backend.id_to_token(token_id) or ""
        if self._is_byte_level:
            codes = [_BYTE_OF_CHARACTER.get(character) for character in piece]
            if None in codes:
                return piece.encode()
            return bytes(code for code in codes if code is not None)
        if match := _BYTE_TOKEN.fullmatch(piece):
            return bytes.fromhex(match[1])
        return piece.replace(_SPACE_MARK, " ").encode()


class ByteDetokenizer:
    """Detokenizer over `TokenBytes`.

    Args:
        table: Bytes of tokens.
        skip_special_tokens: Leave special tokens out.
        at_start: The text is a whole document: drop the space that SentencePiece puts before its
            first word. False for text that continues a prompt.
    """

    def __init__(self, table: TokenBytes, *, skip_special_tokens: bool, at_start: bool) -> None:
        self._table = table
        self._skipped = table.special_ids if skip_special_tokens else frozenset()
        self._strip_next = at_start and table.strips_first_space
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_ids: Iterable[int]) -> str:
        """See `Detokenizer.push`."""
        table, skipped = self._table, self._skipped
        data = b"".join([table[token_id] for token_id in token_ids if token_id not in skipped])
        if self._strip_next and data:
            self._strip_next = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data)

    def flush(self) -> str:
        """See `Detokenizer.flush`."""
        return self._decoder.decode(b"", final=True)


class LibraryDetokenizer:
    """Detokenizer for decoders of another kind (WordPiece, ...), through the tokenizers library."""

    def __init__(self, backend: tokenizers.Tokenizer, *, skip_special_tokens: bool) -> None:
        self._backend = backend
        self._skip = skip_special_tokens
        self._stream = DecodeStream(skip_special_tokens=skip_special_tokens)
        self._ids: list[int] = []
        self._num_sent = 0

    def push(self, token_ids: Iterable[int]) -> str:
        """See `Detokenizer.push`."""
        text = ""
        for token_id in token_ids:
            self._ids.append(token_id)
            text += self._stream.step(self._backend, token_id) or ""
        self._num_sent += len(text)
        return text

    def flush(self) -> str:
        """See `Detokenizer.flush`."""
        whole: str = self._backend.decode(self._ids, skip_special_tokens=self._skip)
        rest = whole[self._num_sent :]
        self._num_sent = len(whole)
        return rest


def token_bytes_for(backend: tokenizers.Tokenizer) -> TokenBytes | None:
    """How this tokenizer's tokens become bytes; ``None`` if only the library can decode them."""
    if backend.decoder is None:
        return None
    steps = _decoder_steps(json.loads(backend.decoder.__getstate__()))
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds:
        return TokenBytes(backend, is_byte_level=True, strip=False)
    if kinds <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}:
        strips = any(_strips_first_space(step) for step in steps)
        return TokenBytes(backend, is_byte_level=False, strip=strips)
    return None


def _decoder_steps(state: dict[str, Any]) -> list[dict[str, Any]]:
    if state["type"] != "Sequence":
        return [state]
    return [inner for step in state["decoders"] for inner in _decoder_steps(step)]


def _strips_first_space(step: dict[str, Any]) -> bool:
    if step["type"] == "Strip":
        return bool(step.get("content") == " " and step.get("start", 0) > 0)
    return bool(step["type"] == "Metaspace" and step.get("prepend_scheme") != "never")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes are themselves, the rest count up from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {chr(0x100 + position): byte for position, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | shifted


_BYTE_OF_CHARACTER = _byte_alphabet()
