"""One wish compiled for one vocabulary, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dougong.grammar.follower import GrammarFollower
from dougong.grammar.limits import parser_limits
from dougong.grammar.refusal import refusal
from dougong.grammar.source import library_grammar
from dougong.messages import StructuredOutput

if TYPE_CHECKING:
    from llguidance import LLTokenizer


def compiled(wish: StructuredOutput, tokenizer: LLTokenizer) -> GrammarFollower:
    """A follower at the start of a text.

    Raises:
        RequestError: The wish cannot be followed; names its field.
    """
    from llguidance import LLMatcher

    try:
        grammar = library_grammar(wish)
    except ValueError as exc:
        raise refusal(wish.kind, str(exc)) from None
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=parser_limits())
    follower = GrammarFollower(matcher, wish.kind)
    if follower.error is None:
        # Shows a dead end, and the first step finds the lexer warm.
        follower.note_mask(np.frombuffer(matcher.compute_bitmask(), np.int32))
    if (error := follower.error) is not None:
        raise error
    return follower
