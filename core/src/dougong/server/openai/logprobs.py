"""Log-probabilities in the two shapes that OpenAI's routes have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dougong.engine.tokenizer import Tokenizer
from dougong.messages import RequestOutput, TokenLogprobs

_LEAST = -9999.0  # stands for minus infinity, which JSON cannot write; OpenAI's own number


def chat_logprobs(
    entries: Sequence[TokenLogprobs], num_top: int, tokenizer: Tokenizer
) -> dict[str, Any]:
    """``choices[].logprobs`` of a chat answer."""
    return {"content": [_chat_entry(entry, num_top, tokenizer) for entry in entries]}


def completion_logprobs(
    entries: Sequence[TokenLogprobs], num_top: int, tokenizer: Tokenizer, first_offset: int
) -> dict[str, Any]:
    """``choices[].logprobs`` of a completion.

    Args:
        entries: One per token.
        num_top: Most likely tokens to show.
        tokenizer: Spells them.
        first_offset: Characters of text before the first of them.
    """
    tokens = [token_text(tokenizer.token_bytes(entry.token_id)) for entry in entries]
    offsets = [first_offset]
    for text in tokens:
        offsets.append(offsets[-1] + len(text))
    return {
        "tokens": tokens,
        "token_logprobs": [_finite(entry.logprob) for entry in entries],
        "top_logprobs": [
            {
                token_text(tokenizer.token_bytes(token_id)): _finite(logprob)
                for token_id, logprob in entry.top[:num_top]
            }
            for entry in entries
        ],
        "text_offset": offsets[:-1],
    }


def prompt_completion_logprobs(
    output: RequestOutput, num_top: int, tokenizer: Tokenizer
) -> dict[str, Any]:
    """The same of a prompt that comes before its completion; its first token follows nothing."""
    first = token_text(tokenizer.token_bytes(output.prompt_token_ids[0]))
    entries = [entry for entry in output.prompt_logprobs or () if entry is not None]
    rest = completion_logprobs(entries, num_top, tokenizer, len(first))
    alone = {
        "tokens": [first],
        "token_logprobs": [None],
        "top_logprobs": [None],
        "text_offset": [0],
    }
    return joined_logprobs(alone, rest)


def joined_logprobs(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """One after the other."""
    return {key: first[key] + second[key] for key in first}


def prompt_logprobs(
    entries: Sequence[TokenLogprobs | None], num_top: int, tokenizer: Tokenizer
) -> list[dict[str, Any] | None]:
    """``prompt_logprobs``: of each token its own and the most likely ones, by id in digits."""
    return [None if one is None else _by_id(one, num_top, tokenizer) for one in entries]


def _by_id(entry: TokenLogprobs, num_top: int, tokenizer: Tokenizer) -> dict[str, Any]:
    shown = ((entry.token_id, entry.logprob), *entry.top[:num_top])
    return {
        str(token_id): {
            "logprob": _finite(logprob),
            "decoded_token": token_text(tokenizer.token_bytes(token_id)),
        }
        for token_id, logprob in shown
    }


def token_text(data: bytes) -> str:
    """A token's text; of one that is part of a character its bytes, so that no two are the same."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _chat_entry(entry: TokenLogprobs, num_top: int, tokenizer: Tokenizer) -> dict[str, Any]:
    top = [_chat_token(one, logprob, tokenizer) for one, logprob in entry.top[:num_top]]
    return {**_chat_token(entry.token_id, entry.logprob, tokenizer), "top_logprobs": top}


def _chat_token(token_id: int, logprob: float, tokenizer: Tokenizer) -> dict[str, Any]:
    data = tokenizer.token_bytes(token_id)
    return {"token": token_text(data), "logprob": _finite(logprob), "bytes": list(data)}


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST)
