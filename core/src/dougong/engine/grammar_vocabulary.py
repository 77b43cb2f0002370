"""A model's tokens as its grammars need them."""

from __future__ import annotations

from dougong.checkpoint import CheckpointFiles
from dougong.engine.tokenizer import Tokenizer
from dougong.errors import RequestError
from dougong.grammar import GrammarVocabulary


def grammar_vocabulary(files: CheckpointFiles, vocab_size: int) -> GrammarVocabulary:
    """The vocabulary of a checkpoint; otherwise as `vocabulary_of`.

    Raises:
        CheckpointError: The tokenizer cannot be read.
    """
    return vocabulary_of(Tokenizer.from_files(files), vocab_size)


def vocabulary_of(tokenizer: Tokenizer, vocab_size: int) -> GrammarVocabulary:
    """A model's tokens.

    Args:
        tokenizer: Of the model.
        vocab_size: Logits of the model; ids past the tokenizer's are padding.

    Raises:
        RequestError: The tokens cannot follow a grammar.
    """
    check_vocabulary(tokenizer, vocab_size)
    special_ids = tokenizer.special_token_ids or frozenset()
    num_known = min(tokenizer.vocab_size, vocab_size)
    known = [tokenizer.token_bytes(token_id) for token_id in range(num_known)]
    return GrammarVocabulary(
        token_bytes=known + [b""] * (vocab_size - num_known),
        special_ids=frozenset(one for one in special_ids if one < vocab_size),
        eos_ids=frozenset(one for one in tokenizer.stop_token_ids if one < vocab_size),
        encode=lambda text: tokenizer.encode(text, add_special_tokens=False),
    )


def check_vocabulary(tokenizer: Tokenizer, vocab_size: int) -> None:
    """Refuse a tokenizer with which no text can follow a grammar.

    Raises:
        RequestError: Names ``structured_output``.
    """
    reason = None
    if tokenizer.special_token_ids is None:
        reason = "its tokenizer's tokens stand for no fixed text"
    elif not any(0 <= one < vocab_size for one in tokenizer.stop_token_ids):
        reason = "it has no token that ends a text"
    if reason is not None:
        raise RequestError(
            f"structured_output cannot be had from this model: {reason}. Leave the field out.",
            field="structured_output",
        )
