"""What a caller may give as a prompt, and its token ids, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dougong.engine.tokenizer import Tokenizer
from dougong.errors import RequestError

Prompt = str | Sequence[int]
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """One prompt.

    Attributes:
        text: ``None`` where only ids were given.
        token_ids: What the model reads.
    """

    text: str | None
    token_ids: tuple[int, ...]


def tokenize(prompt: Prompt, tokenizer: Tokenizer) -> TokenizedPrompt:
    """Ids of a text, or the ids themselves."""
    if isinstance(prompt, str):
        return TokenizedPrompt(prompt, tuple(tokenizer.encode(prompt)))
    return TokenizedPrompt(None, tuple(prompt))


def check_token_ids(field: str, token_ids: Sequence[int], vocab_size: int) -> None:
    """Refuse what is no id of the model's vocabulary.

    Raises:
        RequestError: Names the field, the first wrong id and the range.
    """
    for position, token_id in enumerate(token_ids):
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise RequestError(
                f"{field} has {token_id!r} at position {position}, which is no token id of this "
                f"model: ids run from 0 to {vocab_size - 1}.",
                field=field,
            )


def check_priority(priority: int) -> None:
    """Refuse what the scheduler cannot compare.

    Raises:
        RequestError: Names the field.
    """
    if type(priority) is not int:
        raise RequestError(
            f"priority={priority!r} is of type {type(priority).__name__}; it takes an integer.",
            field="priority",
        )


def check_request_id(request_id: str) -> None:
    """Refuse what cannot be sent to the engine and back.

    Raises:
        RequestError: Names the field.
    """
    if not isinstance(request_id, str) or any("\ud800" <= one <= "\udfff" for one in request_id):
        raise RequestError(
            f"request_id={request_id!r} cannot be sent; it takes text without lone surrogates.",
            field="request_id",
        )
