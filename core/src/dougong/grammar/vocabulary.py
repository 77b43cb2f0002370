"""What a model can emit, as bytes: all that a grammar needs to know of a tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLTokenizer


@dataclass(frozen=True, slots=True)
class GrammarVocabulary:
    """Tokens of one model.

    Attributes:
        token_bytes: By token id, as many as the model has logits. Ids that the tokenizer does not
            know stand for no bytes, and are never allowed.
        special_ids: Tokens that are no text, so that no grammar of characters allows them.
        eos_ids: Tokens that end a text; allowed where a text may end.
        encode: Token ids of a text, without special ones: where a grammar forces a text, these are
            its tokens.
    """

    token_bytes: Sequence[bytes]
    special_ids: frozenset[int]
    eos_ids: frozenset[int]
    encode: Callable[[str], list[int]]

    @property
    def num_words(self) -> int:
        """Int32 words of one mask."""
        return -(-len(self.token_bytes) // 32)


def library_tokenizer(vocabulary: GrammarVocabulary) -> LLTokenizer:
    """The library's form of it; takes up to a second for a large vocabulary."""
    from llguidance import LLTokenizer, TokenizerWrapper

    wrapper = TokenizerWrapper(_Tokens(vocabulary))
    size = len(vocabulary.token_bytes)
    return LLTokenizer(wrapper, n_vocab=size, eos_token=sorted(vocabulary.eos_ids))


class _Tokens:
    """A vocabulary as the library asks for it, by these names."""

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self.tokens = list(vocabulary.token_bytes)
        self.special_token_ids = sorted(vocabulary.special_ids | vocabulary.eos_ids)
        self.eos_token_id = min(vocabulary.eos_ids)
        self.bos_token_id = None
        self._encode = vocabulary.encode
        texts = set(range(len(self.tokens))).difference(self.special_token_ids)
        self._id_of = {self.tokens[one]: one for one in sorted(texts, reverse=True)}
        self._longest = max(map(len, self.tokens))

    def __call__(self, text: bytes | str) -> list[int]:
        """Token ids of these very bytes.

        Many tokenizers put a space before a text, which the grammar did not force.
        """
        data = text if isinstance(text, bytes) else text.encode()
        token_ids = self._encode(data.decode("utf-8", "replace"))
        known = [self.tokens[one] for one in token_ids if one < len(self.tokens)]
        is_text = len(known) == len(token_ids) and b"".join(known) == data
        return token_ids if is_text else self._longest_tokens(data)

    def _longest_tokens(self, data: bytes) -> list[int]:
        """Always the longest token that fits; no further than there is one."""
        token_ids, start = [], 0
        while start < len(data):
            ends = range(min(len(data), start + self._longest), start, -1)
            end = next((one for one in ends if data[start:one] in self._id_of), None)
            if end is None:
                break
            token_ids.append(self._id_of[data[start:end]])
            start = end
        return token_ids
