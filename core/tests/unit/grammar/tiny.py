"""A vocabulary of single bytes, a few longer tokens and special ones, for tests of grammars."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from dougong.grammar import GrammarFollower, GrammarVocabulary

EOS, TURN, PADDING = 256, 257, 264
LONGER = ("{", '{"', '": ', "true", "ab", "yes")
WORDS = (*(bytes([one]) for one in range(256)), b"<eos>", b"<turn>", *(w.encode() for w in LONGER))
NUM_TOKENS = 300  # logits; ids from `PADDING` on stand for nothing


def vocabulary() -> GrammarVocabulary:
    """Two tokens end a text; one of them is not marked as special, as in some checkpoints."""
    return GrammarVocabulary(
        token_bytes=[*WORDS, *[b""] * (NUM_TOKENS - len(WORDS))],
        special_ids=frozenset({TURN}),
        eos_ids=frozenset({EOS, TURN}),
        encode=lambda text: list(text.encode()),
    )


def ids(text: str) -> list[int]:
    """One token per byte."""
    return list(text.encode())


def allowed(mask: npt.NDArray[np.int32]) -> set[int]:
    """Token ids of the bits that are set, by the definition."""
    words: Iterable[int] = mask.tolist()
    return {
        32 * index + bit for index, word in enumerate(words) for bit in range(32) if word >> bit & 1
    }


def allowed_next(follower: GrammarFollower) -> set[int]:
    """Token ids that may come next."""
    mask = np.frombuffer(follower.matcher.compute_bitmask(), np.int32).copy()
    follower.note_mask(mask)
    return allowed(mask)
