"""Text to token ids and back, and conversations to text: everything a checkpoint says of words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dougong.checkpoint import CheckpointFiles, CheckpointFormat
from dougong.engine.chat_template import ChatTemplate
from dougong.engine.detokenizer import (
    ByteDetokenizer,
    Detokenizer,
    LibraryDetokenizer,
    token_bytes_for,
)
from dougong.engine.gguf_tokenizer import gguf_parts
from dougong.engine.tokenizer_parts import TokenizerParts, huggingface_parts
from dougong.errors import RequestError
from dougong.log import get_logger

_logger = get_logger(__name__)


class Tokenizer:
    """A model's tokenizer and chat template. Immutable; shared by all requests and threads.

    BOS: `encode` adds it where the checkpoint asks for it, and never a second one before text that
    begins with it already. `encode_chat` adds none: the template alone says how a conversation
    begins, as in `transformers`.

    Args:
        parts: From `huggingface_parts` or `gguf_parts`; most callers use `from_files`.
        chat_template: Jinja source that replaces the checkpoint's own.

    Raises:
        ConfigError: The chat template has a syntax error.
    """

    def __init__(self, parts: TokenizerParts, *, chat_template: str | None = None) -> None:
        self._backend = parts.backend
        self._bytes = token_bytes_for(parts.backend)
        self.special_tokens: Mapping[str, str] = parts.special_tokens
        self.bos_token_id: int | None = parts.bos_token_id
        self.eos_token_id: int | None = next(iter(parts.stop_token_ids), None)
        self.stop_token_ids: frozenset[int] = frozenset(parts.stop_token_ids)
        self.vocab_size: int = parts.backend.get_vocab_size(with_added_tokens=True)
        source = chat_template or parts.chat_template
        self._template = ChatTemplate(source, parts.special_tokens) if source else None

    @classmethod
    def from_files(cls, files: CheckpointFiles, *, chat_template: str | None = None) -> Tokenizer:
        """Make the tokenizer of a checkpoint.

        Args:
            files: The checkpoint.
            chat_template: As `resolve_chat_template` returns it; ``None``: the checkpoint's own.

        Raises:
            CheckpointError: No tokenizer, a damaged one, or one of an unknown kind.
            ConfigError: The chat template has a syntax error.
        """
        is_gguf = files.format is CheckpointFormat.GGUF
        parts = gguf_parts(files) if is_gguf else huggingface_parts(files)
        tokenizer = cls(parts, chat_template=chat_template)
        if not tokenizer.has_chat_template:
            _logger.info("no chat template: chat is unavailable; --chat-template supplies one")
        return tokenizer

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations can be rendered."""
        return self._template is not None

    @property
    def chat_template(self) -> str | None:
        """The template's source, where there is one."""
        return None if self._template is None else self._template.source

    @property
    def special_token_ids(self) -> frozenset[int] | None:
        """Tokens that are no text; ``None`` where tokens stand for no fixed bytes."""
        return None if self._bytes is None else self._bytes.special_ids

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; special tokens written in it are recognised.

        Args:
            text: Any text; lone surrogates are replaced by a mark.
            add_special_tokens: Add what the checkpoint adds around a document (often BOS).
        """
        clean = text.encode("utf-8", "replace").decode() if not text.isascii() else text
        ids: list[int] = self._backend.encode(clean, add_special_tokens=add_special_tokens).ids
        bos = self.special_tokens.get("bos_token")
        doubled = add_special_tokens and bos and clean.startswith(bos)
        if doubled and ids[:2] == [self.bos_token_id] * 2:
            return ids[1:]
        return ids

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Text of a conversation; see `ChatTemplate.render`.

        Raises:
            RequestError: There is no template, or it refused the messages.
        """
        if self._template is None:
            raise RequestError(
                "This model has no chat template, so it cannot chat. Start it with "
                "--chat-template FILE (or the template itself), or send a plain prompt.",
                field="messages",
            )
        return self._template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            variables=variables,
        )

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a conversation, exactly as the template writes it.

        Raises:
            RequestError: As `render_chat`.
        """
        text = self.render_chat(
            messages,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            variables=variables,
        )
        return self.encode(text, add_special_tokens=False)

    def decode(self, token_ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Text of a whole document's tokens."""
        detokenizer = self.detokenizer(skip_special_tokens=skip_special_tokens, at_start=True)
        return detokenizer.push(token_ids) + detokenizer.flush()

    def detokenizer(
        self, *, skip_special_tokens: bool = True, at_start: bool = False
    ) -> Detokenizer:
        """A new detokenizer for one sequence.

        Args:
            skip_special_tokens: Leave special tokens out of the text.
            at_start: The sequence is a whole document. False, for generated text: it continues its
                prompt, and a space before its first word is kept.
        """
        if self._bytes is None:
            return LibraryDetokenizer(self._backend, skip_special_tokens=skip_special_tokens)
        return ByteDetokenizer(
            self._bytes, skip_special_tokens=skip_special_tokens, at_start=at_start
        )

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes that one token stands for, special or not; may be part of a character."""
        if self._bytes is None:
            text: str = self._backend.decode([token_id], skip_special_tokens=False)
            return text.encode()
        return self._bytes[token_id]
